"""Rules for the names of queues, prefixes, messages, schedules and groups."""

from __future__ import annotations

import unicodedata

from delayq.errors import InvalidInput, InvalidName

MAX_NAME_BYTES = 128
MAX_ID_BYTES = 256


def check_queue_name(name: str, what: str = "queue name") -> str:
    """Return `name` if it is valid for a queue (or `what`): 1 to 128 bytes, printable, without ``{ } #`` and ``://``.

    Braces would move the hash tag, and ``#`` separates the number of a shard: either could form another queue's key. A
    URL in the place of a name is a mistake, and may hold a password.

    Raises:
        InvalidName: names the queue and says what is wrong.
    """
    return _check(what, name, MAX_NAME_BYTES, forbidden="{}#")


def check_prefix(prefix: str) -> str:
    """Return `prefix` if all keys can begin with it; the rules are those for a queue's name."""
    return _check("prefix", prefix, MAX_NAME_BYTES, forbidden="{}#")


def check_id(message_id: str) -> str:
    """Return `message_id` if it is valid: 1 to 256 bytes of UTF-8, printable.

    Raises:
        InvalidName: names the id and says what is wrong.
    """
    return _check("message id", message_id, MAX_ID_BYTES, forbidden="")


def check_schedule_name(name: str) -> str:
    """Return `name` if it is valid for a schedule: 1 to 224 bytes of UTF-8, printable. It becomes part of ids.

    Raises:
        InvalidName: names the schedule and says what is wrong.
    """
    return _check("schedule name", name, MAX_ID_BYTES - 32, forbidden="")


def check_group_name(name: str, what: str = "group name") -> str:
    """Return `name` if it is valid for a group of a topic or one of its consumers: 1 to 256 bytes, printable.

    Raises:
        InvalidName: names the group and says what is wrong.
    """
    return _check(what, name, MAX_ID_BYTES, forbidden="")


def _check(what: str, name: str, most: int, forbidden: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"{what} {name!r} is not a string")
    if forbidden and "://" in name:
        raise InvalidName(f"the {what} is a URL: give a name, and the URL of the server as url=…")
    if not name or name.isspace():
        raise InvalidName(f"a {what} must not be empty: give it at least one character")
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


def check_limit(limit: int, what: str = "limit", most: int = 1_000_000) -> None:
    """Raise InvalidInput if `limit` is not a whole number from 1 to `most`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInput(f"{what} {limit!r} is not a whole number from 1 to {most}")
