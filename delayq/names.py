"""What a queue, a prefix and a message may be called."""

from __future__ import annotations

import os
import unicodedata
from binascii import b2a_base64

from delayq.errors import InvalidName

MAX_NAME_BYTES = 128
MAX_ID_BYTES = 256

_ID_BYTES = 12  # 96 random bits: no two of 10^12 ids are equal, but for a chance of 10^-5
_ID_CHARS = 16
# Letters and digits only: a shell, a URL and a double click take such an id whole.
_READABLE = bytes.maketrans(b"+/", b"xX")


def check_queue_name(name: str) -> str:
    """Return `name` when it can name a queue: 1 to 128 bytes of UTF-8, printable, without ``{``, ``}`` and ``#``.

    Braces would move the hash tag, ``#`` separates the number of a shard: either could form another queue's key.

    Raises:
        InvalidName: naming the queue and what is wrong with it.
    """
    return _check("queue name", name, MAX_NAME_BYTES, forbidden="{}#")


def check_prefix(prefix: str) -> str:
    """Return `prefix` when all keys can begin with it: as a queue's name."""
    return _check("prefix", prefix, MAX_NAME_BYTES, forbidden="{}#")


def check_id(message_id: str) -> str:
    """Return `message_id` when a message can carry it: 1 to 256 bytes of UTF-8, printable.

    Raises:
        InvalidName: naming the id and what is wrong with it.
    """
    return _check("message id", message_id, MAX_ID_BYTES, forbidden="")


def new_ids(count: int) -> list[str]:
    """Return `count` random ids of 16 letters and digits."""
    text = b2a_base64(os.urandom(_ID_BYTES * count), newline=False).translate(_READABLE).decode()
    return [text[start : start + _ID_CHARS] for start in range(0, len(text), _ID_CHARS)]


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
