#!/usr/bin/env python3
"""Write reports at set times, like cron, but without a separate process.

The next occurrence of a schedule waits in the queue like any message. The consumer that receives it sends the one after
it, so each slot is handled once, however many consumers run.

    python examples/reports.py
    python examples/reports.py --slots 10

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if the
slots that `schedules.next` predicted were handled, each once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from datetime import datetime

from delayq import Consumer, Message, Queue

Handled = list[tuple[datetime, str]]


def register(queue: Queue) -> Handled:
    """Register the schedules; return the list to which their handlers add an entry for each run."""
    handled: Handled = []

    def note(message: Message) -> str:
        slot, name = message.slot, message.schedule
        assert slot is not None
        assert name is not None
        handled.append((slot, name))
        return f"{slot:%H:%M:%S}  {name}"

    # Six fields: the first is the seconds. Slots that passed while no consumer ran are handled late.
    @queue.cron("* * * * * *", payload={"of": "the last second"}, missed="all")
    def short(message: Message) -> None:
        say(f"{note(message)}: the report of {message.payload['of']}")

    @queue.cron("0 3 * * mon-fri", timezone="Europe/Berlin", missed="skip", grace=3600)
    def nightly(message: Message) -> None:
        say(f"{note(message)}: the report of the night")

    @queue.handler  # for schedules without a function
    def others(message: Message) -> None:
        say(f"{note(message)}: {message.payload}")

    return handled


def say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # one write, because several threads print


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def main() -> int:
    parser = argparse.ArgumentParser(description="Write reports at set times, like cron.")
    parser.add_argument("--slots", type=int, default=5, metavar="N", help="how many to wait for (default: 5)")
    count = parser.parse_args().slots
    if count < 1:
        parser.error("--slots must be 1 or more")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-reports") as queue:
            handled = register(queue)
            queue.schedules.add("tally", "every 2s", "how many there were", missed="all")
            consumer = Consumer(queue)  # in production: delayq consume MODULE:QUEUE
            consumer.start()  # also stores the schedules of the functions
            upcoming = [(slot.at, slot.schedule) for slot in queue.schedules.next(count)]
            print(f"the next {count} slots:", *(f"{at:%H:%M:%S}  {name}" for at, name in upcoming), sep="\n")
            print("handled:", flush=True)
            done = wait_until(lambda: set(upcoming) <= set(handled), 2.0 * count + 60)
            for schedule in queue.schedules.list():
                queue.schedules.remove(schedule.name)  # otherwise they continue as long as a consumer runs
            consumer.stop()
    doubled = len(handled) - len(set(handled))
    print(f"{'all' if done else 'not all'} of the {count} slots were handled, {doubled} of them twice")
    return int(doubled > 0 or not done)


if __name__ == "__main__":
    raise SystemExit(main())
