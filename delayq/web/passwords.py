"""Passwords: what is kept of one, and comparing with it, which is slow on purpose."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets

MOST_SECRET = 1024
_N, _R, _P = 16_384, 8, 5  # 16 MB and about 0.2 s: what OWASP asks of scrypt where memory is dear
AT_ONCE = 2
"""Passwords that are checked at a time: each takes a core and its memory."""

KNOWN_AT_ONCE = 1
"""Likewise, besides: those of browsers in which their users have logged in before."""

MOST_WAITING = 20
"""Passwords of a lane that are checked or wait for it: whoever guesses from many addresses makes nobody wait longer."""


class TooManyLogins(Exception):
    """There are as many logins as can be looked at."""


class PasswordChecks:
    """Passwords that are looked at: some at a time, while some more wait.

    Args:
        at_once: how many at a time; each takes a core and 16 MB.
    """

    def __init__(self, at_once: int) -> None:
        self._checking = asyncio.Semaphore(at_once)
        self._waiting = 0

    async def matches(self, secret: str, kept: str) -> bool:
        """Whether `kept` is of this password.

        Raises:
            Busy: MOST_WAITING others are looked at.
        """
        if self._waiting >= MOST_WAITING:
            raise TooManyLogins
        self._waiting += 1
        try:
            async with self._checking:
                return await asyncio.to_thread(matches, secret, kept)
        finally:
            self._waiting -= 1


def hashed(password: str) -> str:
    """Return what is kept of a password: scrypt, its costs, a salt and the digest."""
    salt = secrets.token_bytes(16)
    parts = [base64.b64encode(part).decode() for part in (salt, _digest(password, salt, _N, _R, _P))]
    return "$".join(["scrypt", str(_N), str(_R), str(_P), *parts])


def matches(password: str, kept: str) -> bool:
    """Whether `kept` is of this password."""
    n, r, p, salt, digest = _parsed(kept)
    return len(password) <= MOST_SECRET and hmac.compare_digest(_digest(password, salt, n, r, p), digest)


def checked(kept: str) -> str:
    """Return what `hashed` wrote; raises ValueError for what it did not."""
    _parsed(kept)
    return kept


def _parsed(kept: str) -> tuple[int, int, int, bytes, bytes]:
    """Read what `hashed` wrote; raises ValueError."""
    kind, *costs, salt, digest = kept.split("$") if kept.count("$") == 5 else [""] * 6
    if kind != "scrypt":
        raise ValueError("its hash does not begin with scrypt$: make it by delayq dashboard --new-user")
    n, r, p = map(int, costs)
    return n, r, p, base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + 1024 * p * r, dklen=32)
