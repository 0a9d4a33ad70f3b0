"""A consumer of chains: it handles each link, and sends the next one together with the ack.

In the journal, a link is always CHAIN:NUMBER, so that a link sent twice under different ids shows up.

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
    """The task of a consumer of chains.

    Attributes:
        links: the length of each chain.
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
    """Return the message of a link: those of even chains have fixed ids, the others random ones.

    The consumer of a link may be killed more often than a message is retried by default.
    """
    payload = {"chain": chain, "number": number}
    return Outgoing(payload, id=None if chain % 2 else f"{chain}:{number}", on_conflict="error", max_retries=50)


def name_of(message: Message) -> str:
    """Return the name of a link in the journal."""
    return f"{message.payload['chain']}:{message.payload['number']}"


def main(task: Task) -> None:
    leave_at_sigterm()  # until the consumer handles signals itself
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
