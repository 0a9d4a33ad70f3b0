#!/usr/bin/env python3
"""Debounce and throttle: send only one message for a burst of events.

A page is saved when its writer pauses. Each keystroke replaces the message of the previous one and postpones it
(`on_conflict="replace"`). An alarm is sent at once, and not repeated for a while: its id stays reserved after the ack
(`unique_for`).

    python examples/quiet_alarms.py
    python examples/quiet_alarms.py --keystrokes 100 --pause 2

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if each
burst of events led to one save and one alarm.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

from delayq import Consumer, Message, Queue

BEGIN = time.monotonic()


def typed(queue: Queue, text: str, pause: float) -> None:
    """Handle a keystroke: save the page when none has followed for `pause` seconds."""
    queue.send({"save": text}, id="page-7", delay=pause, on_conflict="replace")


def failed(queue: Queue, disk: int, silence: float) -> bool:
    """Handle a disk failure: send an alarm unless one was sent recently; return whether it was sent."""
    return queue.send({"alarm": f"disk {disk} fails"}, id=f"disk-{disk}", unique_for=silence).created


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.2f}s  {text}\n", end="", flush=True)  # one write, because several threads print


def main() -> int:
    parser = argparse.ArgumentParser(description="Debounce keystrokes, and throttle alarms.")
    parser.add_argument("--keystrokes", type=int, default=20, metavar="N", help="per burst (default: 20)")
    parser.add_argument(
        "--pause", type=float, default=0.5, metavar="SECONDS",
        help="save a page after this long without a keystroke; repeat an alarm only a second after that (default: 0.5)",
    )  # fmt: skip
    given = parser.parse_args()
    count, pause, silence = given.keystrokes, given.pause, given.pause + 1
    if count < 1:
        parser.error("--keystrokes must be 1 or more")
    if not pause >= 0.1:
        parser.error("--pause must be 0.1 or more")
    done: list[str] = []

    def handle(message: Message) -> None:
        done.append(next(iter(message.payload.values())))
        say(f"{next(iter(message.payload))}: {done[-1]}")

    alarms = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-quiet-alarms") as queue:
            consumer = Consumer(queue, handle)  # in production: delayq consume MODULE:QUEUE
            consumer.start()
            for burst in ("Dear", "Dear reader"):
                say(f"{count} keystrokes, and {count} failures of disk 1")
                for number in range(count):
                    typed(queue, burst if number == count - 1 else burst[: number % len(burst)], pause)
                    alarms += failed(queue, 1, silence)
                silent_until = time.monotonic() + silence + 0.1  # 0.1 s more, because the server has its own clock
                while queue.stats().inside or time.monotonic() < silent_until:
                    time.sleep(0.05)
            consumer.stop()
    print(f"{2 * count} keystrokes: saved {[text for text in done if text.startswith('Dear')]}")
    print(f"{2 * count} failures: {alarms} alarms")
    return int(sorted(done) != ["Dear", "Dear reader", "disk 1 fails", "disk 1 fails"])


if __name__ == "__main__":
    raise SystemExit(main())
