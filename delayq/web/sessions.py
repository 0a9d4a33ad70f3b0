"""Who a browser is: a cookie that is signed, expires, and can be ended."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

import msgspec
from itsdangerous import BadSignature, URLSafeSerializer

SECONDS = 12 * 3600
"""From a login to the next one."""


MASK = 32
"""Bytes by which a form's token is masked, as many as it has."""


class Session(msgspec.Struct, kw_only=True):
    """What the cookie holds.

    Attributes:
        until: when it ends, in seconds since 1970.
        user: the name of who has logged in.
        told: what the next page is to tell.
    """

    id: str
    until: int
    user: str | None = None
    told: str = ""


class Sessions:
    """Makes, signs and reads sessions.

    Args:
        secret: what they are signed with; those who serve the same dashboard from several processes share one. When
            None, it is made up, and all sessions end with the process.
        clock: tells the time, in seconds since 1970.
    """

    def __init__(self, secret: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret or secrets.token_urlsafe(32)
        signing = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._serializer = URLSafeSerializer(self._secret, salt="delayq session", signer_kwargs=signing)
        self._clock = clock
        self._ended: dict[str, int] = {}  # until when they would have been good

    def new(self, user: str | None = None) -> Session:
        """Return a session that nobody had before."""
        return Session(id=secrets.token_urlsafe(16), until=int(self._clock()) + SECONDS, user=user)

    def read(self, cookie: str) -> Session | None:
        """Return what a cookie holds; None when it is forged, has run out, or was ended."""
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
        """Let a session be good no more, whoever has copied its cookie."""
        now = self._clock()
        self._ended = {each: until for each, until in self._ended.items() if until > now} | {session.id: session.until}

    def token(self, session: Session) -> str:
        """Return what a form of this session carries: who forges one cannot know it.

        It has a new mask each time, as Django's has: the length of a compressed page does not give it away.
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
