#!/usr/bin/env python3
"""Count words in the parts of a text, then add the counts up once every part has ended.

    python examples/group.py

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if the
report ran once, after all parts.
"""

from __future__ import annotations

import os
import tempfile
import time

from delayq import Consumer, Queue, current_message

queue = Queue("example-group")
TEXT = ["one message", "for each part", "and one for all"]
ended: list[str] = []


@queue.task
def count(part: str) -> None:
    ended.append(f"{len(part.split())} words")


@queue.task
def report() -> None:
    message = current_message()
    group = queue.group(message.group) if message and message.group else None
    ended.append(f"report on {group.total if group else 0} parts")


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with queue:
            queue.send_group([count.message(part) for part in TEXT], then=report.message())
            consumer = Consumer(queue)  # in production: delayq consume MODULE:QUEUE
            consumer.start()
            while queue.stats().inside:
                time.sleep(0.05)
            consumer.stop()
    print(", ".join(ended))
    return int(len(ended) != len(TEXT) + 1 or ended[-1] != f"report on {len(TEXT)} parts")


if __name__ == "__main__":
    raise SystemExit(main())
