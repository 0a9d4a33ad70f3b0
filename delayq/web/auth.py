"""Who may use the dashboard: logins by a token, or by the names and passwords of a file."""

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
"""For which a browser is known as one in which somebody has logged in."""


class User(msgspec.Struct, frozen=True):
    """Who looks.

    Attributes:
        name: as the audit lines tell it.
    """

    name: str
    role: Role = "operator"


class Login(Protocol):
    """A way to log in."""

    asks_name: bool

    def user(self, name: str) -> User | None:
        """Return a user who has logged in before; None when there is none of this name any more."""

    def device(self, name: str) -> str:
        """Return what a browser keeps in which this user has logged in; empty where that is of no use."""

    def knows(self, name: str, device: str) -> bool:
        """Whether this user has logged in, with the secret of now, in a browser that keeps this."""

    async def check(self, name: str, secret: str, is_known: bool = False) -> User | None:
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

    def device(self, name: str) -> str:  # noqa: ARG002  # there is no name
        """Return nothing: a token is compared at once, and nobody waits for it."""
        return ""

    def knows(self, name: str, device: str) -> bool:  # noqa: ARG002  # likewise
        """Whether it was a browser of somebody: nobody has asked."""
        return False

    async def check(self, name: str, secret: str, is_known: bool = False) -> User | None:  # noqa: ARG002  # likewise
        """Return the one user, if the secret is the token."""
        return self.user_with(secret)

    def user_with(self, token: str) -> User | None:
        """Compare, in a time that does not tell how much was right."""
        return self._user if hmac.compare_digest(token.encode(), self._token.encode()) else None


class Users:
    """Users with passwords.

    Args:
        lines: ``name:role:hash`` each, as `user_line` makes them; empty ones and those that begin with # are skipped.
        clock: tells the time, in seconds since 1970.

    Raises:
        InvalidInput: naming the line and what is wrong with it.
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

    def device(self, name: str) -> str:
        """Return what a browser keeps: until when, signed with what is kept of the password, and no good for another.

        Source: OWASP, "Slow Down Online Guessing Attacks with Device Cookies".
        """
        return self._signed(name, f"{int(self._clock()) + KNOWN_SECONDS}-{secrets.token_urlsafe(16)}")

    def knows(self, name: str, device: str) -> bool:
        """Whether `device` has made this, for this user and this password, within `KNOWN_SECONDS`."""
        said = device.partition(".")[0]
        is_own = hmac.compare_digest(self._signed(name, said).encode(), device.encode())
        return is_own and int(said.partition("-")[0]) > self._clock()

    async def check(self, name: str, secret: str, is_known: bool = False) -> User | None:
        """Compare with what is kept of the password; a name that is not there takes as long.

        Args:
            is_known: it is asked in a browser in which the user has logged in: others cannot make it wait.

        Raises:
            Busy: MOST_WAITING others are compared.
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
    """Return `role` when it is one."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]  # the values of a Literal
    raise InvalidInput(f"unknown role {role!r}; expected one of {', '.join(get_args(Role))}")


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
