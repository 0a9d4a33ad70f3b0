"""How far a server's clock is ahead of the database's."""

from __future__ import annotations

import time
from collections.abc import Callable

MEASURES = 5
"""How often two clocks are compared at most, until a round trip takes no longer than EXACT_MS."""

EXACT_MS = 4
SECONDS = 60.0
"""How long a result is used before the clocks are compared again."""


class ClockDifference:
    """The difference of two clocks.

    It changes only if a later comparison shows that it is wrong, for example because a clock was set. With another
    result for each row, messages with the same delay would not be due in the order of their rows.

    Args:
        here: returns the time of the database, ms.
    """

    def __init__(self, here: Callable[[], int]) -> None:
        self._here = here
        self._ms = 0
        self._measured_at: float | None = None

    def ms(self, there: Callable[[], int]) -> int:
        """Return the difference, ms; its error is at most half of the shortest of some round trips.

        Args:
            there: asks the server for its time, ms.
        """
        now = time.monotonic()
        if self._measured_at is None or now - self._measured_at > SECONDS:
            found, error = self._measure(there)
            if self._measured_at is None or abs(found - self._ms) > error + EXACT_MS:
                self._ms = found
            self._measured_at = now
        return self._ms

    def _measure(self, there: Callable[[], int]) -> tuple[int, float]:
        """Return the difference and how far it may be wrong, ms."""
        results = []
        for _ in range(MEASURES):  # the first may have to open a connection
            before = self._here()
            seen = there()
            after = self._here()
            results.append((after - before, seen - (before + after) // 2))
            if after - before <= EXACT_MS:
                break
        took, found = min(results)
        return found, took / 2 + 1  # both clocks are read in whole milliseconds
