"""A producer that writes down what it sees.

Usage: python -m tests.harness.chaos.programs.produce JSON
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from delayq import Outgoing, Queue
from delayq.errors import DelayqError, ServerNotReady, ServerOutOfMemory
from tests.harness.chaos.history import Journal

RUN = 20


class Task(msgspec.Struct, kw_only=True):
    """The task of a producer.

    Attributes:
        name: the prefix of the ids of its messages.
        count: the number of messages.
        batch: the number of messages per call; 1 calls `send`.
        delays: seconds, from and to.
        rate: messages per second at most; 0 for no limit.
        wait_replicas: as in `send`.
        sizes: bytes of the messages: so many for the first `RUN` messages, the next for the following ones, in turn.
        again: repeat failed sends under the same id until they are acknowledged.
        options: options of the queue.
    """

    url: str
    queue: str
    journals: str
    name: str
    count: int
    seed: int = 0
    batch: int = 1
    delays: tuple[float, float] = (0.0, 1.0)
    rate: float = 0.0
    wait_replicas: int = 0
    sizes: tuple[int, ...] = (0,)
    again: bool = False
    options: dict[str, Any] = {}


def main(task: Task) -> None:
    journal = Journal(Path(task.journals) / f"producer-{os.getpid()}.jsonl")
    queue = Queue(task.queue, url=task.url, **task.options)
    dice = random.Random(f"{task.seed} {task.name}")
    began = time.monotonic()
    for start in range(0, task.count, task.batch):
        numbers = range(start, min(start + task.batch, task.count))
        batch = [
            Outgoing(padded(task, n), id=f"{task.name}-{n}", delay=round(dice.uniform(*task.delays), 3))
            for n in numbers
        ]
        while not send(queue, journal, batch, task.wait_replicas) and task.again:
            time.sleep(0.05)
        if task.rate:
            time.sleep(max(0.0, began + numbers.stop / task.rate - time.monotonic()))


def padded(task: Task, number: int) -> int | tuple[int, str]:
    """Return the payload of a message: its number, and what makes it as large as its turn says."""
    size = task.sizes[number // RUN % len(task.sizes)]
    return (number, "x" * size) if size else number


def send(queue: Queue, journal: Journal, batch: list[Outgoing], wait_replicas: int) -> bool:
    """Return whether the server has acknowledged the messages."""
    for message in batch:
        journal.note("attempted", message.id or "")
    try:
        sents = queue.send_many(batch, wait_replicas=wait_replicas)
    except (ServerOutOfMemory, ServerNotReady) as error:
        if len(batch) == 1:
            journal.note("refused", batch[0].id or "", note=type(error).__name__)
        return False
    except DelayqError:
        return False
    for sent in sents:
        journal.note("sent", sent.id, ms=sent.due_at.timestamp() * 1000 if sent.created else 0.0)
    return True


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
