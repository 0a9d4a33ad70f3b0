"""How many messages to fetch in one round trip, from their mean size and the measured rate of the link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

DOWN_BYTES = 4 * 1024 * 1024  # received in one round trip
UP_BYTES = 512 * 1024  # sent in one round trip: on a slow uplink, it must end within the socket's timeout
GUESS_BYTES = 512 * 1024.0  # of a message, before the first one was seen: the first trip brings eight
LEASE_SHARE = 1 / 4  # of a lease, for the fetch: this leaves time to handle the messages
LEAST_MEASURED_BYTES = 64 * 1024  # a smaller round trip measures latency rather than the rate


def trips(calls: Iterable[tuple[T, int]], most: int, most_bytes: int = UP_BYTES) -> Iterator[list[T]]:
    """Group calls, given with their bytes, into round trips of up to `most` calls and `most_bytes`, or one larger."""
    trip: list[T] = []
    size = 0
    for call, weight in calls:
        if trip and (len(trip) >= most or size + weight > most_bytes):
            yield trip
            trip, size = [], 0
        trip.append(call)
        size += weight
    if trip:
        yield trip


class ByteBudget:
    """Running means of a client's fetches.

    Attributes:
        mean_bytes: the mean size of a message.
        rate: bytes a second; None before the first large round trip.
    """

    def __init__(self) -> None:
        self.mean_bytes = GUESS_BYTES
        self.rate: float | None = None
        self._is_guess = True

    def count(self, lease_ms: int | None = None, most_bytes: int = DOWN_BYTES) -> int:
        """Return how many messages to fetch in one round trip, 1 or more, within a part of the lease."""
        budget = float(most_bytes)
        if self.rate is not None and lease_ms is not None:
            budget = min(budget, self.rate * lease_ms / 1000 * LEASE_SHARE)
        return max(1, int(budget / self.mean_bytes))

    def note(self, count: int, size: int, seconds: float) -> None:
        """Note a round trip that brought `count` messages, at least one, of `size` bytes in total."""
        mean = max(1.0, size / count)
        self.mean_bytes = mean if self._is_guess else (self.mean_bytes + mean) / 2
        self._is_guess = False
        rate = size / seconds if seconds > 0 else 0.0
        if size >= LEAST_MEASURED_BYTES and rate:
            self.rate = rate if self.rate is None else (self.rate + rate) / 2
        elif self.rate is not None:  # a small round trip gives a lower bound of the rate
            self.rate = max(self.rate, rate)
