"""Who may use the dashboard: logins with a token, or with the names and passwords of a file."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, Protocol, Self, get_args

import msgspec

from delayq.errors import InvalidInput
from delayq.web.passwords import AT_ONCE, KNOWN_AT_ONCE, MOST_SECRET, PasswordChecks, checked, hashed

Role = Literal["operator", "viewer"]
"""An operator may act, a viewer only looks."""

LEAST_TOKEN = 16
LEAST_PASSWORD = 8
KNOWN_SECONDS = 180 * 24 * 3600
"""How long a device cookie is valid."""


class User(msgspec.Struct, frozen=True):
    """A user of the dashboard.

    Attributes:
        name: the name in audit lines.
    """

    name: str
    role: Role = "operator"


class Login(Protocol):
    """A way to log in."""

    asks_name: bool

    def user(self, name: str) -> User | None:
        """Return a user who has logged in before; None if the name does not exist."""

    def device(self, name: str) -> str:
        """Return the device cookie for a browser in which this user has logged in; empty if there is none."""

    def knows(self, name: str, device: str) -> bool:
        """Whether this is a valid device cookie of the user, made with the current secret."""

    async def check(self, name: str, secret: str, is_known: bool = False) -> User | None:
        """Return the user if the secret is right, or None."""


class Token:
    """One secret for all users.

    Args:
        token: 16 characters or more.

    Raises:
        InvalidInput: the token is shorter.
    """

    asks_name = False

    def __init__(self, token: str, role: Role = "operator") -> None:
        if len(token) < LEAST_TOKEN:
            raise InvalidInput(
                f"the token has {len(token)} characters, but needs {LEAST_TOKEN}: use the output of "
                "python3 -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        self._token = token
        self._user = User("token", check_role(role))

    def user(self, name: str) -> User | None:
        """Return the only user."""
        return self._user if name == self._user.name else None

    def device(self, name: str) -> str:  # noqa: ARG002  # there is no name
        """Return nothing: comparing a token takes no time, so no login has to wait."""
        return ""

    def knows(self, name: str, device: str) -> bool:  # noqa: ARG002  # there is no name
        """Return False: there are no device cookies."""
        return False

    async def check(self, name: str, secret: str, is_known: bool = False) -> User | None:  # noqa: ARG002  # there is no name
        """Return the only user if the secret is the token."""
        return self.user_with(secret)

    def user_with(self, token: str) -> User | None:
        """Compare in constant time."""
        return self._user if hmac.compare_digest(token.encode(), self._token.encode()) else None


class Users:
    """Users with passwords.

    Args:
        lines: each is ``name:role:hash``, as made by `user_line`; empty lines and lines that start with # are skipped.
        clock: returns the time in seconds since 1970.

    Raises:
        InvalidInput: a line is invalid; the error says which and why.
    """

    asks_name = True

    def __init__(self, lines: Iterable[str], clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._users: dict[str, User] = {}
        self._hashes: dict[str, str] = {}
        self._nobodys = hashed(secrets.token_urlsafe())
        self._lanes = {False: PasswordChecks(AT_ONCE), True: PasswordChecks(KNOWN_AT_ONCE)}
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                self._add(number, line.strip())
        if not self._users:
            raise InvalidInput("the users file has no users: add a line with delayq dashboard --new-user NAME")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a users file."""
        try:
            return cls(path.read_text("utf-8-sig").splitlines())
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"the users file {path} cannot be read: {error}") from error

    def user(self, name: str) -> User | None:
        """Return the user with this name."""
        return self._users.get(name)

    def device(self, name: str) -> str:
        """Return a device cookie: when it expires, signed with the user's stored password hash.

        Source: OWASP, "Slow Down Online Guessing Attacks with Device Cookies".
        """
        return self._signed(name, f"{int(self._clock()) + KNOWN_SECONDS}-{secrets.token_urlsafe(16)}")

    def knows(self, name: str, device: str) -> bool:
        """Whether `device` made this cookie within `KNOWN_SECONDS`, for this user and the current password."""
        said = device.partition(".")[0]
        is_own = hmac.compare_digest(self._signed(name, said).encode(), device.encode())
        return is_own and int(said.partition("-")[0]) > self._clock()

    async def check(self, name: str, secret: str, is_known: bool = False) -> User | None:
        """Compare with the stored hash; an unknown name takes as long.

        Args:
            is_known: whether the user has logged in with this browser; then others cannot make the login wait.

        Raises:
            TooManyLogins: MOST_WAITING others are being checked.
        """
        is_right = await self._lanes[is_known].matches(secret, self._hashes.get(name, self._nobodys))
        return self._users.get(name) if is_right else None

    def _signed(self, name: str, said: str) -> str:
        kept = self._hashes.get(name, self._nobodys)
        mac = hmac.digest(kept.encode(), f"delayq device {said} {name}".encode(), "sha256")
        return f"{said}.{mac.hex()}"

    def _add(self, number: int, line: str) -> None:
        name, _, rest = line.partition(":")
        role, _, kept = rest.partition(":")
        try:
            self._hashes[name] = checked(kept)
            self._users[check_user_name(name)] = User(name, check_role(role))
        except ValueError as error:
            raise InvalidInput(f"line {number} of the users file is not name:role:hash: {error}") from error


def check_role(role: str) -> Role:
    """Return `role` if it is valid."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]  # the values of a Literal
    raise InvalidInput(f"unknown role {role!r}; expected one of {', '.join(get_args(Role))}")


def check_user_name(name: str) -> str:
    """Return `name` if a users file can hold it."""
    if not name or ":" in name or not name.isprintable() or name != name.strip() or name.startswith("#"):
        raise InvalidInput(f"user name {name!r} is empty, starts with #, or contains a colon or an invisible character")
    return name


def user_line(name: str, role: str, password: str) -> str:
    """Return a line of a users file."""
    if not LEAST_PASSWORD <= len(password) <= MOST_SECRET:
        raise InvalidInput(
            f"the password has {len(password)} characters, but needs {LEAST_PASSWORD} to {MOST_SECRET:,}"
        )
    return f"{check_user_name(name)}:{check_role(role)}:{hashed(password)}"
