"""How many messages a consumer claims. Both faces use it, without I/O."""

from __future__ import annotations

AHEAD_SECONDS = 0.05  # messages fetched beyond the free workers should start within this time
MOST_AHEAD = 1000


def prefetch_limit(concurrency: int, unfinished: int, handler_seconds: float | None) -> int:
    """Return how many messages to claim now.

    With free workers, this is at least one for each. If all are busy, it is 0 until half of the messages fetched ahead
    are done, so that claims stay large. A handler of unknown duration gets nothing ahead.
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
