"""A consumer that counts messages with numbers as payloads: a journal of a million would be too large to read.

Usage: python -m tests.harness.chaos.programs.tally JSON
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from delayq import Consumer, Message, Queue
from tests.harness.chaos.clocks import true_time
from tests.harness.chaos.leaving import leave_at_sigterm


class Task(msgspec.Struct, kw_only=True):
    """The task of a consumer.

    Attributes:
        count: the number of messages; their payloads are the numbers below it.
        folder: where the tally is written.
    """

    url: str
    queue: str
    folder: str
    count: int


class Tally(msgspec.Struct):
    """What a consumer has seen.

    Attributes:
        times: one byte per message: how often it was delivered.
        early: the numbers of messages handed out before they were due.
    """

    times: bytes
    early: list[int]


def main(task: Task) -> None:
    leave_at_sigterm()  # until the consumer handles signals itself
    times, early = bytearray(task.count), []

    def handle(message: Message) -> None:
        times[message.payload] += 1
        if min(message.handed_ms, true_time() * 1000) < message.due_ms:
            early.append(message.payload)

    consumer = Consumer(Queue(task.queue, url=task.url), handle)
    consumer.run()
    _file(Path(task.folder), os.getpid()).write_bytes(msgspec.json.encode(Tally(bytes(times), early)))


def read(folder: Path, pid: int) -> Tally:
    """Return the tally of a consumer that has ended."""
    return msgspec.json.decode(_file(folder, pid).read_bytes(), type=Tally)


def _file(folder: Path, pid: int) -> Path:
    return folder / f"tally-{pid}"


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
