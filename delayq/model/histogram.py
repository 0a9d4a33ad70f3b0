"""How long handlers run, as their consumer has measured it."""

from __future__ import annotations

BUCKETS = 32  # the last one begins at 12 days


class HandlerTimes:
    """How many handlers ran for how long, and the mean of late.

    Attributes:
        seconds: that a handler takes, as far as is known.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._counts: list[list[int]] = []

    def own(self) -> list[int]:
        """Return a histogram for the thread that calls this, which notes into it, and no other does."""
        counts = [0] * BUCKETS
        self._counts.append(counts)
        return counts

    def note(self, seconds: float, counts: list[int]) -> None:
        """Note how long a handler ran, in the histogram of this thread."""
        known = self.seconds
        self.seconds = seconds if known is None else known + (seconds - known) / 8
        counts[bucket(seconds) if seconds >= 0.001 else 0] += 1

    def counts(self) -> list[int]:
        """Return how many ran for how long: bucket b holds 2^(b-1) up to 2^b ms."""
        return list(map(sum, zip(*self._counts, strict=True)))


def bucket(seconds: float) -> int:
    """Return the number of the bucket that a time belongs to."""
    return min(BUCKETS - 1, int(seconds * 1000).bit_length())
