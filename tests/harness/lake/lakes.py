"""Queues with a horizon, on a clock set by the test."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delayq import Message, Queue
from delayq.lake.hydrate import HourLoaded, hydrate
from delayq.model.units import from_ms

HOUR = 3600
DAY = 24 * HOUR
HORIZON = 2 * HOUR
START = dt.datetime(2030, 1, 1, 12, 0, tzinfo=dt.UTC)


class Clock:
    """The time that scripts use."""

    def __init__(self, start: dt.datetime = START) -> None:
        self.ms = round(start.timestamp() * 1000)

    def __call__(self) -> float:
        return self.ms

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.ms += round(seconds * 1000)

    @property
    def now(self) -> dt.datetime:
        """The time."""
        return from_ms(self.ms)


@contextmanager
def far_queue(url: str, lake: Path, clock: Clock, **options: Any) -> Iterator[Queue]:
    """A queue that writes messages to the lake if they are due in more than two hours."""
    with Queue("jobs", url=url, horizon=HORIZON, lake=lake, clock=clock, **options) as queue:
        yield queue


def load(queue: Queue, lake: Path, **options: Any) -> list[HourLoaded]:
    """Load into Redis what starts to fall due within two hours."""
    return hydrate(queue, str(lake), HORIZON, **options)


def counted(loaded: list[HourLoaded], *names: str) -> tuple[int, ...]:
    """The sums of these counts over all files."""
    return tuple(sum(getattr(each.file, name) for each in loaded) for name in names)


def delivered(queue: Queue) -> list[Message]:
    """Receive and ack what is due."""
    found: list[Message] = []
    while messages := queue.receive(500):
        assert all(queue.ack(messages))
        found += messages
    return found


def manifest(hour: Path) -> Path:
    """The only manifest in the folder of an hour."""
    (path,) = hour.glob("_manifest*")
    return path


def files(lake: Path) -> list[Path]:
    """The files of messages, by their paths."""
    return sorted(lake.rglob("*.parquet"))
