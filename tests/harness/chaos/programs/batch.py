"""A consumer of batches that writes down what it sees for each message.

Usage: python -m tests.harness.chaos.programs.batch JSON
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from delayq import Consumer, Message, Queue, backoff
from tests.harness.chaos.handed_back import note_unstarted
from tests.harness.chaos.history import Journal


class Task(msgspec.Struct, kw_only=True):
    """The task of a consumer of batches.

    Attributes:
        work: seconds that a handler takes, between the two halves of its batch.
        fail_every: the first attempt of every n-th message fails, without the rest of its batch.
    """

    url: str
    queue: str
    journals: str
    lease: float
    max_messages: int
    max_wait: float
    work: float
    fail_every: int
    retries_after: float = 0.05
    concurrency: int = 2


def main(task: Task) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the consumer handles signals itself
    journal = Journal(Path(task.journals) / f"consumer-{os.getpid()}.jsonl")
    note_unstarted(journal)
    queue = Queue(task.queue, url=task.url, lease=task.lease, backoff=backoff.fixed(task.retries_after), max_retries=20)

    @queue.batch_handler(max_messages=task.max_messages, max_wait=task.max_wait)
    def handle(messages: list[Message]) -> dict[str, Exception]:
        for message in messages:
            due_ms = float(message.due_ms)
            journal.note("delivered", message.id, attempt=message.attempt, ms=message.handed_ms, due_ms=due_ms)
        failed = [each for each in messages if each.attempt == 1 and each.payload % task.fail_every == 0]
        fine = [message for message in messages if message not in failed]
        for number, message in enumerate(fine):
            if number == len(fine) // 2:
                time.sleep(task.work)
            journal.note("finished", message.id, attempt=message.attempt)
        for message in failed:
            journal.note("failed", message.id, attempt=message.attempt, ms=task.retries_after * 1000)
        return {message.id: ValueError("as the scenario wants it") for message in failed}

    Consumer(queue, concurrency=task.concurrency).run()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
