"""How often somebody may guess."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

SECONDS = 60.0
MOST = 5
"""Wrong guesses a minute from an address. None from elsewhere count: else a stranger could lock everybody out."""

MOST_ADDRESSES = 10_000
"""Of which guesses are remembered, those that were the last to guess."""


class LoginThrottle:
    """The guesses of the last minute, by where they came from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guesses: dict[str, list[float]] = {}  # who guessed last is the last one

    def begin(self, address: str) -> float:
        """Count a guess, and return 0; or, when there were too many, how many seconds to wait."""
        now, place = self._clock(), place_of(address)
        own = [at for at in self._guesses.pop(place, ()) if at > now - SECONDS]
        self._guesses[place] = own
        if len(self._guesses) > MOST_ADDRESSES:
            del self._guesses[next(iter(self._guesses))]
        if len(own) >= MOST:
            return own[0] + SECONDS - now
        own.append(now)
        return 0

    def forgive(self, address: str) -> None:
        """Forget a guess from an address: it was right. Who logs in as one may still guess at another's password."""
        if own := self._guesses.get(place_of(address)):
            own.pop()


def place_of(address: str) -> str:
    """Return what counts as one address: of IPv6 the network, since whoever has one address of it has them all."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
