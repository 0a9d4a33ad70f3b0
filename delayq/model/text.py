"""Ids and other texts on their way to Redis and back, and as people read them."""

from __future__ import annotations


def decode_text(reply: bytes | None) -> str | None:
    """Read a string, or None."""
    return None if reply is None else reply.decode(errors="replace")


def decode_id(reply: bytes) -> str:
    """Read an id; bytes that are no UTF-8, which only another program writes, become lone surrogates."""
    return reply.decode("utf-8", "surrogateescape")


def is_foreign_id(message_id: str) -> bool:
    """Whether an id is no UTF-8: no client of delayq has sent it."""
    return isinstance(encode_id(message_id), bytes)


def encode_id(message_id: str) -> str | bytes:
    """Return an id, or a key that ends in one, as it can be sent: no client of Redis packs a lone surrogate."""
    try:
        message_id.encode()
    except UnicodeEncodeError:
        return message_id.encode("utf-8", "surrogateescape")
    return message_id


def printable_id(message_id: str) -> str:
    r"""Return an id as it can be printed: a byte that is no UTF-8 as in ``\xff``."""
    return message_id.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
