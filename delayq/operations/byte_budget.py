"""How many messages a round trip may bring, by their mean size and the measured rate of the link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

DOWN_BYTES = 4 * 1024 * 1024  # that a round trip brings
UP_BYTES = 512 * 1024  # that a round trip takes: on a slow uplink it has to end within the socket's timeout
GUESS_BYTES = 512 * 1024.0  # of a message, before the first one was seen: the first trip brings eight
LEASE_SHARE = 1 / 4  # of a lease: what is fetched within it can be handled while the lease stands
LEAST_MEASURED_BYTES = 64 * 1024  # a smaller round trip tells more of its latency than of the rate


def trips(calls: Iterable[tuple[T, int]], most: int, most_bytes: int = UP_BYTES) -> Iterator[list[T]]:
    """Cut calls, each with its bytes, into round trips: up to `most` calls of `most_bytes` in all, or one larger."""
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
    """Running means of what a client has fetched.

    Attributes:
        mean_bytes: of a message.
        rate: bytes a second; None before the first large round trip.
    """

    def __init__(self) -> None:
        self.mean_bytes = GUESS_BYTES
        self.rate: float | None = None
        self._is_guess = True

    def count(self, lease_ms: int | None = None, most_bytes: int = DOWN_BYTES) -> int:
        """Return how many messages a round trip may bring, 1 or more: no more than fit into a part of the lease."""
        budget = float(most_bytes)
        if self.rate is not None and lease_ms is not None:
            budget = min(budget, self.rate * lease_ms / 1000 * LEASE_SHARE)
        return max(1, int(budget / self.mean_bytes))

    def note(self, count: int, size: int, seconds: float) -> None:
        """Note a round trip that has brought `count` messages, at least one, of `size` bytes in all."""
        mean = max(1.0, size / count)
        self.mean_bytes = mean if self._is_guess else (self.mean_bytes + mean) / 2
        self._is_guess = False
        rate = size / seconds if seconds > 0 else 0.0
        if size >= LEAST_MEASURED_BYTES and rate:
            self.rate = rate if self.rate is None else (self.rate + rate) / 2
        elif self.rate is not None:  # of a small round trip, it is the least that the link brings
            self.rate = max(self.rate, rate)
