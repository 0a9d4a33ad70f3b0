"""Rules for the names of queues, prefixes, messages, schedules and groups."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Final, Literal

from delayq.errors import InvalidInput, InvalidName
from delayq.model.credentials import is_unfit_id, is_unfit_name

MAX_NAME_BYTES = 128
MAX_ID_BYTES = 256
MAX_WEIGHT = 1000  # of a queue among those of a consumer
MAX_RECEIVED = 500  # messages in a call
MOST_LISTED = 1_000_000  # messages
MOST_HANDLERS = 10_000  # messages or records that one consumer runs

Kind = Literal["queue", "topic"]
"""What a name on a server belongs to: a queue and a topic may have the same one."""

KINDS: Final[tuple[Kind, ...]] = ("queue", "topic")


def check_queue_name(name: str, what: str = "queue name") -> str:
    """Return `name` if it is valid for a queue (or `what`): 1 to 128 bytes, printable, without ``{ } #``.

    Braces would move the hash tag, and ``#`` separates the number of a shard: either could form another queue's key.

    Raises:
        InvalidName: names the queue and says what is wrong. A text that may hold a password is not shown: one with
            ``://`` or with a colon before an ``@``, or a connection string.
    """
    return _check(what, name, MAX_NAME_BYTES, is_unfit_name, forbidden="{}#")


def check_prefix(prefix: str) -> str:
    """Return `prefix` if all keys can begin with it; the rules are those for a queue's name."""
    return check_queue_name(prefix, "prefix")


def check_id(message_id: str) -> str:
    """Return `message_id` if it is valid: 1 to 256 bytes of UTF-8, printable.

    Raises:
        InvalidName: names the id and says what is wrong. A URL with a login, a server's URL or a connection string is
            refused and not shown.
    """
    return _check("message id", message_id, MAX_ID_BYTES, is_unfit_id)


def checked_ids(ids: str | Iterable[str]) -> list[str]:
    """Return one id, or several, as a list; raises InvalidInput if one of them is not valid."""
    if not isinstance(ids, Iterable):
        raise InvalidInput(f"ids {ids!r} is not an id or an iterable of ids")
    return [check_id(each) for each in ([ids] if isinstance(ids, str) else ids)]


def check_schedule_name(name: str) -> str:
    """Return `name` if it is valid for a schedule: 1 to 224 bytes of UTF-8, printable. It becomes part of ids.

    Raises:
        InvalidName: names the schedule and says what is wrong, as for a queue.
    """
    return _check("schedule name", name, MAX_ID_BYTES - 32, is_unfit_name)


def check_task_name(name: str) -> str:
    """Return `name` if it is valid for a task: 1 to 256 bytes of UTF-8, printable.

    Raises:
        InvalidName: names the task and says what is wrong, as for a queue.
    """
    return _check("task name", name, MAX_ID_BYTES, is_unfit_name)


def check_group_name(name: str, what: str = "group name") -> str:
    """Return `name` if it is valid for a group of a topic or one of its consumers: 1 to 256 bytes, printable.

    Raises:
        InvalidName: names the group and says what is wrong, as for an id, since other programs choose such names, too.
    """
    return _check(what, name, MAX_ID_BYTES, is_unfit_id)


def _check(what: str, name: str, most: int, is_unfit: Callable[[str], bool], forbidden: str = "") -> str:
    if not isinstance(name, str):
        shown = repr(name) if name is None or isinstance(name, int | float) else f"of type {type(name).__name__}"
        raise InvalidName(f"{what} {shown} is not a string")
    if not name or name.isspace():
        raise InvalidName(f"a {what} must not be empty: give it at least one character")
    if is_unfit(name):
        raise InvalidName(
            f"the {what} is a URL or has a password, as in user:password@host: give another {what}, and the URL of a "
            "server as url=…"
        )
    size = len(name) if name.isascii() and name.isprintable() else _unicode_size(what, name)
    if size > most:
        raise InvalidName(f"{what} {name[:32]!r}… is {size} bytes long: at most {most} are allowed")
    for char in forbidden:
        if char in name:
            raise InvalidName(f"{what} {name!r} contains {char!r}: use other characters than {' '.join(forbidden)}")
    return name


def _unicode_size(what: str, name: str) -> int:
    for char in name:
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
            raise InvalidName(f"{what} {name[:32]!r} contains {char!r}: control characters are not allowed")
    return len(name.encode())


def check_limit(limit: int, what: str = "limit", most: int = MOST_LISTED) -> None:
    """Raise InvalidInput if `limit` is not a whole number from 1 to `most`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInput(f"{what} {limit!r} is not a whole number from 1 to {most:,}")


def is_whole(value: object) -> bool:
    """Return whether a value is an int other than True and False."""
    return isinstance(value, int) and not isinstance(value, bool)
