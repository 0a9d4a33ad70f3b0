"""How much to send and to fetch in one round trip, and how many messages to claim for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

DOWN_BYTES = 4 * 1024 * 1024  # received in one round trip
UP_BYTES = 512 * 1024  # sent in one round trip: on a slow uplink, it must end within the socket's timeout
UP_CALL_BYTES = 128 * 1024  # sent in one call: the server works on it while the next one is packed
GUESS_BYTES = 512 * 1024.0  # of a message, before the first one was seen: the first trip brings eight
LEASE_SHARE = 1 / 4  # of a lease, for the fetch: this leaves time to handle the messages
LEAST_BYTES = 64 * 1024  # of a round trip after failures: one message is fetched in any case
RECOVERY_SECONDS = 60.0  # after a failure, until a round trip may bring twice as much again
LEAST_MEASURED_BYTES = 64 * 1024  # a smaller round trip measures latency rather than the rate


def trips(calls: Iterable[tuple[T, int]], most: int, most_bytes: int = UP_BYTES) -> Iterator[list[T]]:
    """Group what is sent, given with its bytes, into parts of up to `most` and `most_bytes`, or one that is larger."""
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
    """The bytes that one round trip may bring, and running means of a client's fetches.

    The mean size decides how many messages a claim takes. It does not bound the bytes of a round trip, since large
    messages may follow small ones: the fetch itself does.

    Attributes:
        mean_bytes: the mean size of a message.
        rate: bytes a second; None before the first large round trip.
    """

    def __init__(self) -> None:
        self.mean_bytes = GUESS_BYTES
        self.rate: float | None = None
        self._is_guess = True
        self._most = DOWN_BYTES
        self._grows_at = 0.0

    def most_bytes(self, lease_ms: int) -> int:
        """Return how many bytes one round trip may bring, within a part of the lease."""
        if self.rate is None:
            return self._most
        return max(1, min(self._most, int(self.rate * lease_ms / 1000 * LEASE_SHARE)))

    def count(self, lease_ms: int) -> int:
        """Return how many messages to claim for one round trip, 1 or more."""
        return max(1, int(self.most_bytes(lease_ms) / self.mean_bytes))

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
        if self._most < DOWN_BYTES and time.monotonic() >= self._grows_at:
            self._allow(2 * self._most)

    def failed(self, most_bytes: int) -> None:
        """Halve the next round trips: one that could bring `most_bytes` failed, perhaps because it was too large."""
        self._allow(most_bytes // 2)

    def _allow(self, most_bytes: int) -> None:
        self._most = max(LEAST_BYTES, min(DOWN_BYTES, most_bytes))
        self._grows_at = time.monotonic() + RECOVERY_SECONDS
