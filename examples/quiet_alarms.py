#!/usr/bin/env python3
"""Debounce and throttle: of a burst of events, only what matters is sent.

A page that is typed into is saved once its writer has paused: each keystroke replaces the message of the one before,
and puts it off (`on_conflict="replace"`). An alarm comes at once, and its repetitions not for a while: its id stays
reserved after the ack (`unique_for`).

    python examples/quiet_alarms.py
    python examples/quiet_alarms.py --keystrokes 100 --pause 2

The queue is on the Redis of DELAYQ_URL, or else in an embedded store that is thrown away. The exit code is 0 when one
save and one alarm came of all the events of each burst.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

from delayq import Consumer, Message, Queue

BEGIN = time.monotonic()


def typed(queue: Queue, text: str, pause: float) -> None:
    """A writer has typed: save the page once there is a pause of so many seconds."""
    queue.send({"save": text}, id="page-7", delay=pause, on_conflict="replace")


def failed(queue: Queue, disk: int, silence: float) -> bool:
    """A disk has reported a failure: tell somebody, unless that was done lately; return whether it is to be told."""
    return queue.send({"alarm": f"disk {disk} fails"}, id=f"disk-{disk}", unique_for=silence).created


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.2f}s  {text}\n", end="", flush=True)  # in one piece: threads speak at once


def main() -> int:
    parser = argparse.ArgumentParser(description="Debounce keystrokes, and throttle alarms.")
    parser.add_argument("--keystrokes", type=int, default=20, metavar="N", help="of each burst (default: 20)")
    parser.add_argument(
        "--pause", type=float, default=0.5, metavar="SECONDS",
        help="without a keystroke until a page is saved; an alarm is not repeated for a second longer (default: 0.5)",
    )  # fmt: skip
    given = parser.parse_args()
    count, pause, silence = given.keystrokes, given.pause, given.pause + 1
    if count < 1:
        parser.error("--keystrokes is to be 1 or more")
    if not pause >= 0.1:
        parser.error("--pause is to be 0.1 or more: nobody types faster")
    done: list[str] = []

    def handle(message: Message) -> None:
        done.append(next(iter(message.payload.values())))
        say(f"{next(iter(message.payload))}: {done[-1]}")

    told = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-quiet-alarms") as queue:
            consumer = Consumer(queue, handle)  # in life a process of its own: delayq consume MODULE:QUEUE
            consumer.start()
            for burst in ("Dear", "Dear reader"):
                say(f"{count} keystrokes, and {count} failures of disk 1")
                for number in range(count):
                    typed(queue, burst if number == count - 1 else burst[: number % len(burst)], pause)
                    told += failed(queue, 1, silence)
                silent_until = time.monotonic() + silence + 0.1  # by another clock than the server's
                while queue.stats().inside or time.monotonic() < silent_until:
                    time.sleep(0.05)
            consumer.stop()
    print(f"{2 * count} keystrokes: saved {[text for text in done if text.startswith('Dear')]}")
    print(f"{2 * count} failures: told {told} times")
    return int(sorted(done) != ["Dear", "Dear reader", "disk 1 fails", "disk 1 fails"])


if __name__ == "__main__":
    raise SystemExit(main())
