"""A command for Redis, and how its reply is read: what the sync and the async face share.

Nothing here does I/O. A `Call` is built by `delayq.scripts`, run by a connection, and its reply read by the call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from delayq.errors import DelayqError

T = TypeVar("T")
Raw: TypeAlias = str | bytes | int | float


class Script:
    """A Lua script of this package: its name, its text, and the digest by which Redis knows it.

    Args:
        name: of the file; behind that of its folder, if it is in one, as in ``topics/publish``.
    """

    def __init__(self, name: str) -> None:
        folder = files("delayq.lua")
        self.name = name
        preludes = [folder / "prelude.lua"]
        if "/" in name:
            preludes.append(folder / name.partition("/")[0] / "prelude.lua")
        paragraphs = [paragraph for prelude in preludes for paragraph in prelude.read_text().split("\n\n")]
        self.text = _with_needed(paragraphs, (folder / f"{name}.lua").read_text())
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def _with_needed(paragraphs: Sequence[str], text: str) -> str:
    """Put those paragraphs of the preludes in front of a script that it uses, or that these use.

    Each defines one thing. To define them all at each call would take Redis a microsecond.
    """
    for paragraph in reversed(paragraphs):
        defined = re.search(r"^local (?:function (\w+\()|(\w+))", paragraph, re.MULTILINE)
        if defined and re.search(rf"\b{re.escape(defined[1] or defined[2])}", re.sub("--.*", "", text)):
            text = f"{paragraph}\n\n{text}"
    return text


script = cache(Script)
"""Return the script of a name; each is read once."""


# redis-py makes objects of the replies to commands that it knows as text: those in bytes are read as they come.
_PLAIN = frozenset({"HINCRBY", "HMGET", "MGET", "ZRANGE", b"XLEN", b"XRANGE", b"XREVRANGE"})


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One command.

    Attributes:
        key: a key of the command; it decides the server of a cluster.
        args: the command's words; for a script, those that follow its digest.
        read: turns the reply into the result.
        script: the script to run, or None for a plain command.
        whole: send the script's text, not its digest, where no second round trip may come between.
        repeats: whether it may be sent again when nobody knows whether the server has run it.
    """

    key: str
    args: tuple[Raw, ...]
    read: Callable[[Any], T]
    script: Script | None = None
    whole: bool = False
    repeats: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether the server's reply is read as it comes, and any connection to the key's server will do."""
        return self.script is not None or self.args[0] in _PLAIN

    @property
    def goes_along(self) -> bool:
        """Whether it is sent again with a call before it, of which its reply may tell: plain, and may run twice."""
        return self.script is None and self.repeats

    def words(self, whole: bool = False) -> tuple[Raw, ...]:
        """Return the command as it is sent."""
        if self.script is None:
            return self.args
        if whole or self.whole:
            return ("EVAL", self.script.text, *self.args)
        return ("EVALSHA", self.script.sha, *self.args)


Steps: TypeAlias = Generator[list[Call[Any]], list[Any], T]
"""An operation: it yields calls that go out in one round trip, is sent their results, and returns its own.

A result is what the call reads, or the DelayqError that the server answered with.
"""


def one(call: Call[T]) -> Steps[T]:
    """Run one call: return its result, or raise its error."""
    (reply,) = yield [call]
    result: T = expect(reply)
    return result


def expect(result: T | Exception) -> T:
    """Return a result that is no error; raise one that is."""
    if isinstance(result, Exception):
        raise result
    return result


def as_is(reply: Any) -> Any:
    """Read a reply as it came."""
    return reply


def text(reply: bytes | None) -> str | None:
    """Read a string, or None."""
    return None if reply is None else reply.decode(errors="replace")


def id_of(reply: bytes) -> str:
    """Read an id; bytes that are no UTF-8, which only another program writes, become lone surrogates."""
    return reply.decode("utf-8", "surrogateescape")


def is_foreign(message_id: str) -> bool:
    """Whether an id is no UTF-8: no client of delayq has sent it."""
    return isinstance(word(message_id), bytes)


def word(message_id: str) -> str | bytes:
    """Return an id, or a key that ends in one, as it can be sent: no client of Redis packs a lone surrogate."""
    try:
        message_id.encode()
    except UnicodeEncodeError:
        return message_id.encode("utf-8", "surrogateescape")
    return message_id


def shown(message_id: str) -> str:
    r"""Return an id as it can be printed: a byte that is no UTF-8 as in ``\xff``."""
    return message_id.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def together(*operations: Steps[Any]) -> Steps[list[Any]]:
    """Run several operations side by side, their calls sharing round trips; return their results.

    The result of one that fails is its DelayqError: what the others have done must not be forgotten. So a trip that
    fails as a whole is an error of each of its calls, too.
    """
    results: list[Any] = [None] * len(operations)
    waiting: dict[int, list[Call[Any]]] = {}

    def advance(number: int, replies: list[Any] | None) -> None:
        try:
            waiting[number] = operations[number].send(replies)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as stop:
            waiting.pop(number, None)
            results[number] = stop.value
        except DelayqError as error:
            waiting.pop(number, None)
            results[number] = error

    for number in range(len(operations)):
        advance(number, None)
    while waiting:
        groups = list(waiting.items())
        trip = [call for _, calls in groups for call in calls]
        try:
            replies = yield trip
        except DelayqError as error:
            replies = [error] * len(trip)
        for number, calls in groups:
            advance(number, replies[: len(calls)])
            replies = replies[len(calls) :]
    return results


def nothing() -> Steps[None]:
    """Do nothing: an operation that takes no round trip."""
    yield from ()
