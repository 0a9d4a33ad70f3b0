"""A command for Redis, and how to read its reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from delayq.protocol.script import Script

T = TypeVar("T")
Raw: TypeAlias = str | bytes | int | float


_TEXTS = frozenset({str, bytes})

# redis-py converts the replies to commands that it knows by a str name; with names in bytes, replies stay unchanged.
_PLAIN = frozenset({"EXISTS", "HINCRBY", "HMGET", "MGET", "SET", "ZRANGE", b"XLEN", b"XRANGE", b"XREVRANGE"})


class Command(msgspec.Struct, Generic[T], frozen=True):
    """One command.

    Attributes:
        key: a key of the command, which decides the server in a cluster.
        args: the command's words; for a script, those after its digest, which must be bytes and str.
        read: turns the reply into the result.
        script: the script to run, or None for a plain command.
        whole: whether to send the script's text instead of its digest, to avoid a second round trip.
        repeats: whether it may be sent again if it is unknown whether the server has run it.
    """

    key: str
    args: tuple[Raw, ...]
    read: Callable[[Any], T]
    script: Script | None = None
    whole: bool = False
    repeats: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether the reply is read unchanged, and any connection to the key's server can be used."""
        return self.script is not None or self.args[0] in _PLAIN

    @property
    def goes_along(self) -> bool:
        """Whether it is sent again with an earlier call that its reply may depend on: it is plain and may run twice."""
        return self.script is None and self.repeats

    def words(self, whole: bool = False) -> tuple[Raw, ...]:
        """Return the words to send, as bytes and str."""
        if self.script is None:
            return texts(self.args)
        if whole or self.whole:
            return ("EVAL", self.script.text, *self.args)
        return ("EVALSHA", self.script.sha, *self.args)


def texts(words: Sequence[Raw]) -> tuple[str | bytes, ...]:
    """Return words without numbers.

    hiredis 3.5 converts an int without a look at the result: an exception of a signal handler crashes the process.
    """
    if _TEXTS.issuperset(map(type, words)):
        return tuple(words)  # type: ignore[arg-type]
    return tuple([str(word) if isinstance(word, (int, float)) else word for word in words])


def identity(reply: Any) -> Any:
    """Return a reply unchanged."""
    return reply
