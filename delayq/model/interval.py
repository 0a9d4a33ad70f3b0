"""When a recurring duty is due."""

from __future__ import annotations

import time
from collections.abc import Callable

FALLBACK_MS = 1000
"""The longest that work can go unnoticed if a bell is lost."""


class Interval:
    """Says when a recurring duty is due.

    Args:
        seconds: between two runs; the first is due at once.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = clock()

    def due(self, early: float = 0.0) -> bool:
        """Return whether the duty is due within `early` seconds; if so, it is next due `seconds` from now."""
        now = self._clock()
        if now < self._next - early:
            return False
        self._next = now + self._seconds
        return True

    def now(self) -> None:
        """Make the duty due at once."""
        self._next = self._clock()

    def within(self, seconds: float) -> None:
        """Make the duty due in `seconds` at the latest."""
        self._next = min(self._next, self._clock() + seconds)

    def left(self) -> float:
        """Return the seconds until it is due, 0 or more."""
        return max(0.0, self._next - self._clock())
