"""A consumer of a topic that writes a line for each record it has handled.

Usage: python -m tests.harness.chaos.programs.fan JSON
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from delayq import Record, Topic, TopicConsumer, backoff
from tests.harness.chaos.leaving import leave_at_sigterm


class Task(msgspec.Struct, kw_only=True):
    """The task of a consumer.

    Attributes:
        work: seconds that a handler takes.
        fail_every: the first delivery of every n-th record fails; 0 for none.
    """

    url: str
    topic: str
    group: str
    journals: str
    ack_timeout: float = 5.0
    concurrency: int = 4
    work: float = 0.0
    fail_every: int = 0


def path_of(folder: str | Path, group: str, pid: int) -> Path:
    """Return the file where a process writes what it has handled."""
    return Path(folder) / f"handled-{group}-{pid}"


def main(task: Task) -> None:
    leave_at_sigterm()  # until the consumer handles signals itself
    file = os.open(path_of(task.journals, task.group, os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(record: Record) -> None:
        if task.work:
            time.sleep(task.work)
        if task.fail_every and record.deliveries == 1 and record.payload % task.fail_every == 0:
            raise ValueError("as the scenario wants it")
        os.write(file, f"{record.payload}\n".encode())

    with Topic(task.topic, url=task.url) as topic:
        group = topic.group(task.group, "0")
        waits = backoff.fixed(0.05)
        TopicConsumer(group, handle, concurrency=task.concurrency, ack_timeout=task.ack_timeout, backoff=waits).run()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
