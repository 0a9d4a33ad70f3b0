"""Sessions of browsers: signed cookies that expire and can be ended."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

import msgspec
from itsdangerous import BadSignature, URLSafeSerializer

SECONDS = 12 * 3600
"""How long a login lasts."""


MASK = 32
"""Bytes of the mask of a form's token, as many as the token has."""


class Session(msgspec.Struct, kw_only=True):
    """The content of the cookie.

    Attributes:
        until: when it expires, in seconds since 1970.
        user: the name of the user.
        notice: the notice for the next page.
    """

    id: str
    until: int
    user: str | None = None
    notice: str = ""


class Sessions:
    """Makes, signs and reads sessions.

    Args:
        secret: the signing key; processes that serve the same dashboard share one. If None, it is random, and all
            sessions end with the process.
        clock: returns the time in seconds since 1970.
    """

    def __init__(self, secret: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret or secrets.token_urlsafe(32)
        signing = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._serializer = URLSafeSerializer(self._secret, salt="delayq session", signer_kwargs=signing)
        self._clock = clock
        self._ended: dict[str, int] = {}  # by when they would have expired

    def new(self, user: str | None = None) -> Session:
        """Return a new session."""
        return Session(id=secrets.token_urlsafe(16), until=int(self._clock()) + SECONDS, user=user)

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is forged, expired or ended."""
        try:
            session = msgspec.convert(self._serializer.loads(cookie), Session)
        except (BadSignature, msgspec.ValidationError):
            return None
        return None if session.until <= self._clock() or session.id in self._ended else session

    def written(self, session: Session) -> str:
        """Return the cookie."""
        text: str | bytes = self._serializer.dumps(msgspec.to_builtins(session))
        return text if isinstance(text, str) else text.decode()

    def end(self, session: Session) -> None:
        """End a session, also for copies of its cookie."""
        now = self._clock()
        self._ended = {each: until for each, until in self._ended.items() if until > now} | {session.id: session.until}

    def token(self, session: Session) -> str:
        """Return the token for forms of this session; forged forms cannot know it.

        As in Django, it has a new mask each time, so that the length of a compressed page does not reveal it.
        """
        mask = secrets.token_bytes(MASK)
        return (mask + _masked(self._digest(session), mask)).hex()

    def is_token(self, session: Session, token: str) -> bool:
        """Whether a form was made for this session."""
        try:
            given = bytes.fromhex(token)
        except ValueError:
            return False
        return hmac.compare_digest(_masked(given[MASK:], given[:MASK]), self._digest(session))

    def _digest(self, session: Session) -> bytes:
        return hmac.digest(self._secret.encode(), f"delayq form {session.id}".encode(), "sha256")


def _masked(text: bytes, mask: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(text, mask, strict=False))
