"""How much a consumer takes, and when it looks after what: decisions without I/O, for both faces."""

from __future__ import annotations

import time
from collections.abc import Callable

FALLBACK_MS = 1000
"""The longest that work can go unnoticed when a bell is lost."""

AHEAD_SECONDS = 0.05  # what is fetched beyond the free workers should start within this time
MOST_AHEAD = 1000


def room(concurrency: int, unfinished: int, handler_seconds: float | None) -> int:
    """Return how many messages to claim now.

    With free workers that is at least one each; when all are busy, nothing until half of what was fetched ahead is
    done, so that claims stay large. A handler of unknown duration gets nothing ahead.
    """
    most = concurrency + ahead(concurrency, handler_seconds)
    free = most - unfinished
    if unfinished >= concurrency and free <= most // 2:
        return 0
    return max(0, free)


def ahead(concurrency: int, handler_seconds: float | None) -> int:
    """Return how many messages to fetch beyond the free workers; none while a handler's duration is unknown."""
    if handler_seconds is None:
        return 0
    return min(MOST_AHEAD, int(concurrency * AHEAD_SECONDS / max(handler_seconds, 1e-6)))


class Every:
    """Says when a recurring duty is due.

    Args:
        seconds: between two turns; the first is due at once.
        clock: a monotonic one, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = clock()

    def due(self) -> bool:
        """Return whether the duty is due; if so, its next turn is `seconds` from now."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True

    def now(self) -> None:
        """Let the duty be due at once."""
        self._next = self._clock()

    def left(self) -> float:
        """Return the seconds until it is due, 0 or more."""
        return max(0.0, self._next - self._clock())
