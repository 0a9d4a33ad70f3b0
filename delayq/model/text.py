"""Conversion of ids and other texts to and from Redis, and for display."""

from __future__ import annotations

import re

from delayq.model.units import MAX_COUNT, MAX_TIME_MS

_DELIVERIES = re.compile(rb"\d+(\.\d+){3}")


def decode_text(reply: bytes | None) -> str | None:
    """Read a string, or None."""
    return None if reply is None else reply.decode(errors="replace")


def decode_id(reply: bytes) -> str:
    """Read an id; bytes that are not UTF-8, which only another program writes, become lone surrogates."""
    return reply.decode("utf-8", "surrogateescape")


def decode_count(reply: bytes | str) -> int:
    """Read a counter; 0 if it is not a whole number, or larger than any count, which only another program writes."""
    try:
        count = int(reply)
    except ValueError:
        return 0
    return count if abs(count) <= MAX_COUNT else 0


def decode_deliveries(reply: bytes | None) -> str | None:
    """Read ``past.released.attempts_reset.lost``; None if there is none, or if delayq did not write it."""
    return reply.decode() if reply is not None and _DELIVERIES.fullmatch(reply) else None


def decode_ms(reply: bytes) -> int:
    """Read a time in whole ms; values that delayq never writes, out of range or no number, become the nearest end."""
    try:
        return int(min(max(float(reply), 0.0), MAX_TIME_MS))
    except ValueError:
        return 0


def is_foreign_id(message_id: str) -> bool:
    """Whether an id is not UTF-8, so that no client of delayq can have sent it."""
    return isinstance(encode_id(message_id), bytes)


def encode_id(message_id: str) -> str | bytes:
    """Return an id, or a key that ends in one, in a form that can be sent: clients cannot encode a lone surrogate."""
    try:
        message_id.encode()
    except UnicodeEncodeError:
        return message_id.encode("utf-8", "surrogateescape")
    return message_id


def printable_id(message_id: str) -> str:
    r"""Return an id for display, with bytes that are not UTF-8 written like ``\xff``."""
    return message_id.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def printable(text: str, keep: str = "") -> str:
    r"""Return a text for display: characters that are invisible or change how others look are written like ``\u202e``.

    Letters of all scripts stay, and so do emoji. Joiners and selectors stay within emoji, where they change the
    picture, and are escaped elsewhere. Letters that look alike stay.

    Args:
        keep: characters that stay, such as line ends.
    """
    if text.isascii() and text.isprintable():
        return text
    unseen = re.compile(_UNSEEN)  # kept by `re`, and not compiled at the import: programs start faster
    joining = {place for match in re.finditer(_JOINING, text) for place in range(*match.span())}
    return "".join(
        char if place in joining or char in keep or (char.isprintable() and not unseen.match(char)) else _escaped(char)
        for place, char in enumerate(text)
    )


def _escaped(char: str) -> str:
    is_foreign_byte = "\udc80" <= char <= "\udcff"
    return printable_id(char) if is_foreign_byte else char.encode("unicode_escape").decode()


_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_REGIONS = ("gbeng", "gbsct", "gbwls")  # the flags of England, Scotland, Wales; other tags can hide a text
_TAGS = "|".join("".join(chr(0xE0000 + ord(char)) for char in each) for each in _REGIONS)
_JOINING = (
    rf"(?<=\U0001f3f4)(?:{_TAGS})\U000e007f|"
    rf"(?<=[{_EMOJI}])\ufe0f|(?<=[0-9#*])\ufe0f(?=\u20e3)|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
)
_UNSEEN = (  # invisible fillers and selectors that Unicode counts as letters, marks or signs
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
