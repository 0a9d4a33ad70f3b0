"""Password hashes, and comparing with them, which is slow on purpose."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets

MOST_SECRET = 1024
_N, _R, _P = 16_384, 8, 5  # 16 MB and about 0.2 s: what OWASP recommends for scrypt with little memory
AT_ONCE = 2
"""Passwords that are checked at once: each takes a core and its memory."""

KNOWN_AT_ONCE = 1
"""The same, in addition, for browsers in which their users have logged in before."""

MOST_WAITING = 20
"""Passwords of a lane that are checked or waiting. This limits the wait if somebody guesses from many addresses."""


class TooManyLogins(Exception):
    """As many logins as possible are being checked already."""


class PasswordChecks:
    """Checks passwords, a few at once, while some more wait.

    Args:
        at_once: how many are checked at once; each takes a core and 16 MB.
    """

    def __init__(self, at_once: int) -> None:
        self._checking = asyncio.Semaphore(at_once)
        self._waiting = 0

    async def matches(self, secret: str, kept: str) -> bool:
        """Whether `kept` is the hash of this password.

        Raises:
            TooManyLogins: MOST_WAITING others are being checked.
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
    """Return the hash of a password: scrypt, its costs, a salt and the digest."""
    salt = secrets.token_bytes(16)
    parts = [base64.b64encode(part).decode() for part in (salt, _digest(password, salt, _N, _R, _P))]
    return "$".join(["scrypt", str(_N), str(_R), str(_P), *parts])


def matches(password: str, kept: str) -> bool:
    """Whether `kept` is the hash of this password."""
    n, r, p, salt, digest = _parsed(kept)
    return len(password) <= MOST_SECRET and hmac.compare_digest(_digest(password, salt, n, r, p), digest)


def checked(kept: str) -> str:
    """Return a hash if `hashed` made it; otherwise raises ValueError."""
    _parsed(kept)
    return kept


def _parsed(kept: str) -> tuple[int, int, int, bytes, bytes]:
    """Parse a hash; raises ValueError."""
    kind, *costs, salt, digest = kept.split("$") if kept.count("$") == 5 else [""] * 6
    if kind != "scrypt":
        raise ValueError("its hash does not start with scrypt$: create it with delayq dashboard --new-user")
    n, r, p = map(int, costs)
    return n, r, p, base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + 1024 * p * r, dklen=32)
