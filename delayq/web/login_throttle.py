"""Limits how often passwords can be guessed."""

from __future__ import annotations

import time
from collections.abc import Callable

from delayq.http_connections import place_of

SECONDS = 60.0
MOST = 5
"""Wrong guesses per minute from an address. Each address has its own count, or a stranger could lock everybody out."""

MOST_LINES, MOST_LINES_OF_ALL = 20, 200
"""Refusals to strangers that are logged per minute, from an address and in total, or they could fill the disk."""

MOST_ADDRESSES = 10_000
"""The number of addresses whose guesses are remembered: the latest ones."""


class LoginThrottle:
    """The guesses of the last minute, by address.

    Args:
        most: guesses per minute from an address.
        clock: returns the time in seconds.
    """

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._guesses: dict[str, list[float]] = {}  # the latest address is last

    def begin(self, address: str) -> float:
        """Count a guess and return 0; after too many guesses, return how many seconds to wait."""
        now, place = self._clock(), place_of(address)
        own = [at for at in self._guesses.pop(place, ()) if at > now - SECONDS]
        self._guesses[place] = own
        if len(self._guesses) > MOST_ADDRESSES:
            del self._guesses[next(iter(self._guesses))]
        if len(own) >= self._most:
            return own[0] + SECONDS - now
        own.append(now)
        return 0

    def forgive(self, address: str) -> None:
        """Forget one guess from an address, since it was right. Others still count: users can guess at other users."""
        if own := self._guesses.get(place_of(address)):
            own.pop()
