"""A consumer that writes down what it sees.

Usage: python -m tests.harness.chaos.programs.consume JSON
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from delayq import Ack, Consumer, Message, Outgoing, Queue, backoff
from tests.harness.chaos.handed_back import note_unstarted
from tests.harness.chaos.history import Journal
from tests.harness.chaos.leaving import leave_at_sigterm


class Task(msgspec.Struct, kw_only=True):
    """The task of a consumer.

    Attributes:
        options: options of the queue, beside those below.
        work: seconds that a handler takes.
        keyed: messages whose ids are equal up to a hyphen share a limit.
        fail_every: the first attempt of every n-th message fails; 0 for none.
        then_every: every n-th message sends another with its ack, whose id ends in "+"; 0 for none.
        refused_bytes: before that, at the first attempt, it tries to send one of this size, which the server refuses.
    """

    url: str
    queue: str
    journals: str
    lease: float = 5.0
    concurrency: int = 4
    work: float = 0.0
    fail_every: int = 0
    then_every: int = 0
    refused_bytes: int = 0
    retries_after: float = 0.05
    keyed: bool = False
    options: dict[str, Any] = {}


def main(task: Task) -> None:
    leave_at_sigterm()  # until the consumer handles signals itself
    journal = Journal(Path(task.journals) / f"consumer-{os.getpid()}.jsonl")
    note_unstarted(journal)
    waits = backoff.fixed(task.retries_after)
    options = task.options | ({"concurrency_key": lambda message: message.id.split("-")[0]} if task.keyed else {})
    queue = Queue(task.queue, url=task.url, lease=task.lease, backoff=waits, **options)

    def handle(message: Message) -> Ack | None:
        journal.note("delivered", message.id, attempt=message.attempt, ms=message.handed_ms, due_ms=message.due_ms)
        if task.work:
            time.sleep(task.work)
        number = message.payload[0] if isinstance(message.payload, list) else message.payload
        number = number if isinstance(number, int) else 0
        follows = task.then_every and number and number % task.then_every == 0
        if follows and message.attempt == 1 and task.refused_bytes:
            journal.note("failed", message.id, attempt=message.attempt)
            return Ack(then=[Outgoing(b"x" * task.refused_bytes)])
        if task.fail_every and message.attempt == 1 and number % task.fail_every == 0:
            journal.note("failed", message.id, attempt=message.attempt, ms=task.retries_after * 1000)
            raise ValueError("as the scenario wants it")
        journal.note("finished", message.id, attempt=message.attempt)
        if not follows:
            return None
        journal.note("attempted", f"{message.id}+")
        return Ack(then=[Outgoing(0, id=f"{message.id}+")])

    Consumer(queue, handle, concurrency=task.concurrency).run()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
