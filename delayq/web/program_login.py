"""Logins of programs: each request carries a token, or a name and a password."""

from __future__ import annotations

import asyncio
import base64
import hmac
import math
import secrets
import time
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.web.auth import Login, Token, User
from delayq.web.passwords import MOST_SECRET, TooManyLogins
from delayq.web.request_context import client_address, is_api

KNOWN_SECONDS = 300.0
"""How long a right password is not hashed again: hashing takes a core for 0.2 seconds."""

MOST_KNOWN = 1000


class Credentials(NamedTuple):
    """The credentials of a request; `name` is "token" if there are no names."""

    name: str
    secret: str


def credentials(request: Request, login: Login) -> Credentials | None:
    """Return the credentials of a request; None if there are none of the kind that the login needs.

    Pages can be read with a token. Everything else is for the API.
    """
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if isinstance(login, Token) and scheme.lower() == "bearer" and (is_api(request) or request.method in READING):
        return Credentials("token", given.strip())
    if login.asks_name and scheme.lower() == "basic" and is_api(request):
        try:
            name, _, secret = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            name, secret = "", ""
        return Credentials(name[:MOST_SECRET], secret[: MOST_SECRET + 1])
    return None


READING = {"GET", "HEAD"}


class ProgramLogin:
    """Checks the credentials of programs; wrong guesses count like those of browsers."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, float] = {}  # expiry, on the monotonic clock
        self._checks: dict[bytes, asyncio.Task[User | None]] = {}

    async def user(self, request: Request, login: Login, given: Credentials) -> User | None:
        """Return the user; None if the secret is wrong.

        Raises:
            HTTPException: 429 after too many wrong guesses from this address, 503 while too many others log in.
        """
        if isinstance(login, Token):
            return await _checked(request, login, given)
        digest = hmac.digest(self._key, f"{given.name}\0{given.secret}".encode(), "sha256")
        if self._known.get(digest, 0.0) > time.monotonic():
            return login.user(given.name)
        # Simultaneous requests with the same password share one check and count as one guess.
        check = self._checks.get(digest)
        if check is None:
            check = self._checks[digest] = asyncio.create_task(_checked(request, login, given))
            check.add_done_callback(lambda _: self._checks.pop(digest, None))
        user = await asyncio.shield(check)
        if user is not None:
            self._known.pop(digest, None)
            self._known[digest] = time.monotonic() + KNOWN_SECONDS
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        return user


async def _checked(request: Request, login: Login, given: Credentials) -> User | None:
    attempts, address = request.app.state.attempts, client_address(request)
    if wait := attempts.begin(address):
        seconds = str(math.ceil(wait))
        raise HTTPException(429, f"Too many attempts: wait {seconds} seconds.", {"retry-after": seconds})
    try:
        user = await login.check(given.name, given.secret)
    except TooManyLogins as error:
        attempts.forgive(address)  # it was not checked
        raise HTTPException(503, "Too many logins at once: try again in a few seconds.") from error
    if user is not None:
        attempts.forgive(address)
    return user
