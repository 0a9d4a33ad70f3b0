"""Who may use the dashboard: logins by a token, or by the names and passwords of a file."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, Protocol, Self, get_args

import msgspec

from delayq.errors import InvalidInput

Role = Literal["operator", "viewer"]
"""An operator may act, a viewer only looks."""

LEAST_TOKEN = 16
LEAST_PASSWORD = 8
MOST_SECRET = 1024
_N, _R, _P = 16_384, 8, 5  # 16 MB and about 0.2 s: what OWASP asks of scrypt where memory is dear
_AT_ONCE: Final = 2  # passwords that are checked at a time: each takes a core and its memory
MOST_WAITING = 20
"""Passwords that are checked or wait for it: whoever guesses from many addresses makes nobody wait longer."""


class User(msgspec.Struct, frozen=True):
    """Who looks.

    Attributes:
        name: as the audit lines tell it.
    """

    name: str
    role: Role = "operator"


class Busy(Exception):
    """There are as many logins as can be looked at."""


class Login(Protocol):
    """A way to log in."""

    asks_name: bool

    def user(self, name: str) -> User | None:
        """Return a user who has logged in before; None when there is none of this name any more."""

    async def check(self, name: str, secret: str) -> User | None:
        """Return the user who knows the secret; None for one who does not."""


class Token:
    """One secret for all who may look.

    Args:
        token: 16 characters or more.

    Raises:
        InvalidInput: it is shorter.
    """

    asks_name = False

    def __init__(self, token: str, role: Role = "operator") -> None:
        if len(token) < LEAST_TOKEN:
            raise InvalidInput(
                f"the token has {len(token)} characters: {LEAST_TOKEN} are needed, as in the output of "
                "python3 -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        self._token = token
        self._user = User("token", check_role(role))

    def user(self, name: str) -> User | None:
        """Return the one user."""
        return self._user if name == self._user.name else None

    async def check(self, name: str, secret: str) -> User | None:  # noqa: ARG002  # there is no name
        """Return the one user, if the secret is the token."""
        return self.user_with(secret)

    def user_with(self, token: str) -> User | None:
        """Compare, in a time that does not tell how much was right."""
        return self._user if hmac.compare_digest(token.encode(), self._token.encode()) else None


class Users:
    """Users with passwords.

    Args:
        lines: ``name:role:hash`` each, as `user_line` makes them; empty ones and those that begin with # are skipped.

    Raises:
        InvalidInput: naming the line and what is wrong with it.
    """

    asks_name = True

    def __init__(self, lines: Iterable[str]) -> None:
        self._users: dict[str, User] = {}
        self._hashes: dict[str, str] = {}
        self._nobodys = hashed(secrets.token_urlsafe())
        self._checking = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                self._add(number, line.strip())
        if not self._users:
            raise InvalidInput("the users file names nobody: add a line by delayq dashboard --new-user NAME")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a users file."""
        try:
            return cls(path.read_text().splitlines())
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"the users file {path} cannot be read: {error}") from error

    def user(self, name: str) -> User | None:
        """Return the user of a name."""
        return self._users.get(name)

    async def check(self, name: str, secret: str) -> User | None:
        """Compare with what is kept of the password; a name that is not there takes as long.

        Raises:
            Busy: MOST_WAITING others are compared.
        """
        if self._waiting >= MOST_WAITING:
            raise Busy
        kept = self._hashes.get(name, self._nobodys)
        self._waiting += 1
        try:
            async with self._checking:
                is_right = await asyncio.to_thread(matches, secret, kept)
        finally:
            self._waiting -= 1
        return self._users.get(name) if is_right else None

    def _add(self, number: int, line: str) -> None:
        name, _, rest = line.partition(":")
        role, _, kept = rest.partition(":")
        try:
            _parsed(kept)
            self._users[check_user_name(name)] = User(name, check_role(role))
        except ValueError as error:
            raise InvalidInput(f"line {number} of the users file is not name:role:hash: {error}") from error
        self._hashes[name] = kept


def check_role(role: str) -> Role:
    """Return `role` when it is one."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]  # the values of a Literal
    raise InvalidInput(f"role {role!r} is none of {', '.join(get_args(Role))}")


def check_user_name(name: str) -> str:
    """Return `name` when a users file can hold it."""
    if not name or ":" in name or not name.isprintable() or name != name.strip() or name.startswith("#"):
        raise InvalidInput(f"user name {name!r} is empty, begins with a #, or has a colon or an unseen character")
    return name


def user_line(name: str, role: str, password: str) -> str:
    """Return a line of a users file."""
    if not LEAST_PASSWORD <= len(password) <= MOST_SECRET:
        raise InvalidInput(f"the password has {len(password)} characters: {LEAST_PASSWORD} to {MOST_SECRET} are needed")
    return f"{check_user_name(name)}:{check_role(role)}:{hashed(password)}"


def hashed(password: str) -> str:
    """Return what is kept of a password: scrypt, its costs, a salt and the digest."""
    salt = secrets.token_bytes(16)
    parts = [base64.b64encode(part).decode() for part in (salt, _digest(password, salt, _N, _R, _P))]
    return "$".join(["scrypt", str(_N), str(_R), str(_P), *parts])


def matches(password: str, kept: str) -> bool:
    """Whether `kept` is of this password."""
    n, r, p, salt, digest = _parsed(kept)
    return len(password) <= MOST_SECRET and hmac.compare_digest(_digest(password, salt, n, r, p), digest)


def _parsed(kept: str) -> tuple[int, int, int, bytes, bytes]:
    """Read what `hashed` wrote; raises ValueError."""
    kind, *costs, salt, digest = kept.split("$") if kept.count("$") == 5 else [""] * 6
    if kind != "scrypt":
        raise ValueError("its hash does not begin with scrypt$: make it by delayq dashboard --new-user")
    n, r, p = map(int, costs)
    return n, r, p, base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + 1024 * p * r, dklen=32)
