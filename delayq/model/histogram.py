"""How long handlers run, as measured by their consumer."""

from __future__ import annotations

BUCKETS = 32  # the last one begins at 12 days


class HandlerTimes:
    """A histogram of how long handlers ran, and a recent mean.

    Attributes:
        seconds: how long a handler takes, as far as known.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._counts: list[list[int]] = []

    def own(self) -> list[int]:
        """Return a new histogram for the calling thread, which alone writes to it."""
        counts = [0] * BUCKETS
        self._counts.append(counts)
        return counts

    def note(self, seconds: float, counts: list[int]) -> None:
        """Record how long a handler ran, in the histogram of this thread."""
        known = self.seconds
        self.seconds = seconds if known is None else known + (seconds - known) / 8
        counts[bucket(seconds) if seconds >= 0.001 else 0] += 1

    def counts(self) -> list[int]:
        """Return the counts of all threads: bucket b holds times from 2^(b-1) up to 2^b ms."""
        return list(map(sum, zip(*self._counts, strict=True)))


def bucket(seconds: float) -> int:
    """Return the number of the bucket for a time."""
    return min(BUCKETS - 1, int(seconds * 1000).bit_length())
