"""A program that receives messages, and settles them when the file `go` appears.

Usage: python -m tests.harness.chaos.programs.settle_late JSON
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from delayq import Message, Queue
from delayq.errors import StaleReceipt
from tests.harness.chaos.history import Journal
from tests.harness.waiting import eventually

LONG = 3600.0  # seconds
CALLS: dict[str, Callable[[Message], object]] = {
    "ack": Message.ack,
    "nack": Message.nack,
    "extend": lambda message: message.extend(LONG),
    "release": Message.release,
    "reject": Message.reject,
}


class Task(msgspec.Struct, kw_only=True):
    """The task of the program.

    Attributes:
        count: the number of messages to receive; each payload names a call, or is "acks" for those acked together.
        go: a file that appears when it is time to make the calls.
    """

    url: str
    queue: str
    journals: str
    lease: float
    count: int
    go: str


def main(task: Task) -> None:
    journal = Journal(Path(task.journals) / f"late-{os.getpid()}.jsonl")
    queue = Queue(task.queue, url=task.url, lease=task.lease)
    held: list[Message] = []
    while len(held) < task.count:
        for message in queue.receive(task.count, wait=1):
            journal.delivered(message)
            held.append(message)
    journal.note("settled", note="all taken")
    if not eventually(Path(task.go).exists, 600):
        sys.exit("not told to go on")
    for message in held:
        if message.payload in CALLS:
            journal.note("settled", message.id, attempt=message.attempt, note=said(message))
    together = [message for message in held if message.payload == "acks"]
    for message, ours in zip(together, queue.ack(together), strict=True):
        journal.note("settled", message.id, attempt=message.attempt, note="accepted" if ours else "stale")


def said(message: Message) -> str:
    """Settle a message as its payload says, and return the queue's answer."""
    try:
        CALLS[message.payload](message)
    except StaleReceipt:
        return "stale"
    return "accepted"


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
