"""A consumer of chains: each link is handled, and sends the next one in one step with its ack.

In the journal, a link is CHAIN:NUMBER, whatever its message is called: a link that was sent twice would be seen there.

Usage: python -m tests.harness.chaos.programs.chain JSON
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from delayq import Ack, Consumer, Message, Outgoing, Queue
from tests.harness.chaos.handed_back import note_unstarted
from tests.harness.chaos.history import Journal
from tests.harness.chaos.leaving import leave_at_sigterm


class Task(msgspec.Struct, kw_only=True):
    """What a consumer of chains is to do.

    Attributes:
        links: of each chain.
        work: seconds that a handler takes.
    """

    url: str
    queue: str
    journals: str
    lease: float
    links: int
    work: float
    concurrency: int = 4


def link(chain: int, number: int) -> Outgoing:
    """Return the message of a link: those of even chains have ids of their own, the others random ones.

    The consumers of one may be killed more often than a message is retried by default.
    """
    payload = {"chain": chain, "number": number}
    return Outgoing(payload, id=None if chain % 2 else f"{chain}:{number}", on_conflict="error", max_retries=50)


def name_of(message: Message) -> str:
    """Return what a link is called in the journal."""
    return f"{message.payload['chain']}:{message.payload['number']}"


def main(task: Task) -> None:
    leave_at_sigterm()  # until the consumer looks after it
    journal = Journal(Path(task.journals) / f"consumer-{os.getpid()}.jsonl")
    note_unstarted(journal, name_of)
    queue = Queue(task.queue, url=task.url, lease=task.lease)

    def handle(message: Message) -> Ack:
        chain, number = message.payload["chain"], message.payload["number"]
        due_ms = float(message.due_ms)
        name = name_of(message)
        journal.note("delivered", name, attempt=message.attempt, ms=message.handed_ms, due_ms=due_ms)
        time.sleep(task.work)
        last = number == task.links
        if not last:
            journal.note("attempted", f"{chain}:{number + 1}")
        journal.note("finished", name, attempt=message.attempt)
        return Ack() if last else Ack(then=[link(chain, number + 1)])

    Consumer(queue, handle, concurrency=task.concurrency).run()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
