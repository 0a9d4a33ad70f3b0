"""The messages to send: their payloads contain their due times."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

DIGITS = 13  # of the due time in ms since 1970 at the start of a payload; enough until the year 2286

T = TypeVar("T")


class Message(NamedTuple):
    """A message to send.

    Attributes:
        payload: the digits of `due_ms`, then filler.
        due_ms: since 1970.
    """

    payload: str
    due_ms: int

    @property
    def due(self) -> float:
        """The due time in seconds since 1970."""
        return self.due_ms / 1000

    @property
    def at(self) -> dt.datetime:
        """The due time as an aware datetime."""
        return dt.datetime.fromtimestamp(self.due_ms / 1000, dt.UTC)

    @property
    def delay(self) -> float:
        """The seconds until it is due, at least 0.001, since a peer would take its immediate path without a delay."""
        return max(self.due_ms / 1000 - time.time(), 0.001)


def due_in(count: int, delay: float, size: int) -> Iterator[Message]:
    """Yield `count` messages of `size` bytes, each due `delay` seconds after it is taken from here."""
    filler = "x" * (size - DIGITS)
    for _ in range(count):
        due = round((time.time() + delay) * 1000)
        yield Message(f"{due}{filler}", due)


def spread(count: int, over: float, after: float, size: int) -> Iterator[Message]:
    """Yield `count` messages of `size` bytes, due evenly over `over` seconds, the first in `after` seconds."""
    filler, start = "x" * (size - DIGITS), time.time() + after
    for place in range(count):
        due = round((start + over * place / count) * 1000)
        yield Message(f"{due}{filler}", due)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last one may be shorter."""
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


class Stopwatch:
    """Times a run of sends from inside: a sender takes the next message once the previous one is confirmed.

    Attributes:
        seconds: from the first measured message to the confirmation of the last.
    """

    seconds = 0.0

    def run(self, warm_up: Iterable[T], measured: Iterable[T]) -> Iterator[T]:
        """Yield all messages of both, and time the second."""
        yield from warm_up
        started = time.perf_counter()
        yield from measured
        self.seconds = time.perf_counter() - started
