#!/usr/bin/env python3
"""Write reports at set times, as cron does it, without a process for it.

The next occurrence of a schedule waits in the queue like any message, and whichever consumer is handed it sends the one
after that. So each slot is handled once, however many consumers there are.

    python examples/reports.py
    python examples/reports.py --slots 10

The queue is on the Redis of DELAYQ_URL, or else in an embedded store that is thrown away. The exit code is 0 when the
slots that `schedules.next` has told were those that were handled.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime

from delayq import Consumer, Message, Queue

Handled = list[tuple[datetime, str]]


def register(queue: Queue) -> Handled:
    """Register what is to be done, and when; return the list of what was."""
    handled: Handled = []

    def note(message: Message) -> str:
        name = str(message.headers["delayq-schedule"])
        slot = datetime.fromtimestamp(message.headers["delayq-slot"] / 1000, UTC)
        handled.append((slot, name))
        return f"{slot:%H:%M:%S}  {name}"

    # Six fields: the first is that of the seconds. A slot that came while nobody was there is handled late.
    @queue.cron("* * * * * *", payload={"of": "the last second"}, missed="all")
    def short(message: Message) -> None:
        say(f"{note(message)}: the report of {message.payload['of']}")

    @queue.cron("0 3 * * mon-fri", timezone="Europe/Berlin", missed="skip", grace=3600)
    def nightly(message: Message) -> None:
        say(f"{note(message)}: the report of the night")

    @queue.handler  # what the schedules send that were added by hand
    def others(message: Message) -> None:
        say(f"{note(message)}: {message.payload}")

    return handled


def say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # in one piece: threads speak at once


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def main() -> int:
    parser = argparse.ArgumentParser(description="Write reports at set times, as cron does it.")
    parser.add_argument("--slots", type=int, default=5, metavar="N", help="how many to wait for (default: 5)")
    count = parser.parse_args().slots
    if count < 1:
        parser.error("--slots is to be 1 or more")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-reports") as queue:
            handled = register(queue)
            queue.schedules.add("tally", "every 2s", "how many there were", missed="all")
            consumer = Consumer(queue)  # in life a process of its own: delayq consume MODULE:QUEUE
            consumer.start()  # stores the schedules of the functions
            upcoming = [(slot.at, slot.schedule) for slot in queue.schedules.next(count)]
            print(f"the next {count} slots:", *(f"{at:%H:%M:%S}  {name}" for at, name in upcoming), sep="\n")
            print("what is handled:", flush=True)
            done = wait_until(lambda: set(upcoming) <= set(handled), 2.0 * count + 60)
            for schedule in queue.schedules.list():
                queue.schedules.remove(schedule.name)  # else they go on as long as anybody consumes
            consumer.stop()
    doubled = len(handled) - len(set(handled))
    print(f"{'all' if done else 'not all'} of the {count} slots were handled, {doubled} of them twice")
    return int(doubled > 0 or not done)


if __name__ == "__main__":
    raise SystemExit(main())
