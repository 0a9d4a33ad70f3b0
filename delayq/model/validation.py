"""What a queue, a prefix and a message may be called."""

from __future__ import annotations

import os
import unicodedata
from binascii import b2a_base64

from delayq.errors import InvalidInput, InvalidName

MAX_NAME_BYTES = 128
MAX_ID_BYTES = 256

# 83 random bits: among 10^9 messages in a queue two are alike with a chance of 10^-7. With two characters more, a
# message would take 16 bytes more: an allocator that counts in sixteens has room for 14 and their length.
_ID_CHARS = 14
# Letters and digits only: a shell, a URL and a double click take such an id whole.
_READABLE = bytes.maketrans(b"+/", b"xX")
# Made in stock: to ask the system for a few random bytes costs as much as for many.
_STOCK = 64
_stock: list[str] = []
os.register_at_fork(after_in_child=_stock.clear)  # else parent and child would give out the same ids


def check_queue_name(name: str, what: str = "queue name") -> str:
    """Return `name` when it can name a queue (or `what`): 1 to 128 bytes, printable, without ``{``, ``}``, ``#``.

    Braces would move the hash tag, ``#`` separates the number of a shard: either could form another queue's key.

    Raises:
        InvalidName: naming the queue and what is wrong with it.
    """
    return _check(what, name, MAX_NAME_BYTES, forbidden="{}#")


def check_prefix(prefix: str) -> str:
    """Return `prefix` when all keys can begin with it: as a queue's name."""
    return _check("prefix", prefix, MAX_NAME_BYTES, forbidden="{}#")


def check_id(message_id: str) -> str:
    """Return `message_id` when a message can carry it: 1 to 256 bytes of UTF-8, printable.

    Raises:
        InvalidName: naming the id and what is wrong with it.
    """
    return _check("message id", message_id, MAX_ID_BYTES, forbidden="")


def check_schedule_name(name: str) -> str:
    """Return `name` when a schedule can carry it: 1 to 224 bytes of UTF-8, printable; ids are made of it.

    Raises:
        InvalidName: naming the schedule and what is wrong with it.
    """
    return _check("schedule name", name, MAX_ID_BYTES - 32, forbidden="")


def check_group_name(name: str, what: str = "group name") -> str:
    """Return `name` when a group of a topic, or one of its consumers, can carry it: 1 to 256 bytes, printable.

    Raises:
        InvalidName: naming the group and what is wrong with it.
    """
    return _check(what, name, MAX_ID_BYTES, forbidden="")


def new_id() -> str:
    """Return a random id, as `new_ids`."""
    try:
        return _stock.pop()
    except IndexError:
        ids = new_ids(_STOCK)
        _stock.extend(ids[1:])
        return ids[0]


def new_ids(count: int) -> list[str]:
    """Return `count` random ids of 14 letters and digits."""
    chars = count * _ID_CHARS
    text = b2a_base64(os.urandom(-(-chars // 4) * 3), newline=False).translate(_READABLE).decode()
    return [text[start : start + _ID_CHARS] for start in range(0, chars, _ID_CHARS)]


def _check(what: str, name: str, most: int, forbidden: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"a {what} is a string, not {name!r}")
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
    """Raise InvalidInput when `limit` is no number from 1 to `most`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInput(f"{what} {limit!r} is not a whole number from 1 to {most}")
