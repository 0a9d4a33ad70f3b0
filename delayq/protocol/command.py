"""A command for Redis, and how to read its reply."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")
Raw: TypeAlias = str | bytes | int | float


class Script:
    """A Lua script of this package: its name, its text, and the digest that Redis knows it by.

    Args:
        name: the file's name, with its folder if there is one, as in ``topics/publish``.
    """

    def __init__(self, name: str) -> None:
        folder = files("delayq.lua")
        self.name = name
        preludes = [folder / "prelude.lua"]
        if "/" in name:
            preludes.append(folder / name.partition("/")[0] / "prelude.lua")
        paragraphs = [paragraph for prelude in preludes for paragraph in prelude.read_text("utf-8").split("\n\n")]
        text = (folder / f"{name}.lua").read_text("utf-8")
        self.text = _with_needed(paragraphs, _probed(paragraphs, text))
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_WRITES = frozenset(
    {"DEL", "UNLINK", "SET", "MSET", "PEXPIRE", "HSET", "HDEL", "HINCRBY", "SADD", "SREM", "XADD", "XACK", "XDEL"}
    | {"ZADD", "ZREM", "ZRANGESTORE", "ZREMRANGEBYRANK"}
)


_LOOKS = {"zset": "ZSCORE", "hash": "HGET", "set": "SISMEMBER"}


def _probed(paragraphs: Sequence[str], text: str) -> str:
    """Make a script that moves messages fail before it changes anything.

    It fails if a key in its header has another type, or if the user may not run one of its commands. The check is where
    the script calls `probe()`, or else at its beginning. A "Probes" line in the header limits the check to that key.
    """
    header = re.match(r"(?:--.*\n)*", text)
    if header is None or not re.search(r"^-- State .*->", header[0], re.MULTILINE):
        return text
    only = re.search(r"^-- Probes +(\w+)", header[0], re.MULTILINE)
    lines = []
    for number, name, kind in re.findall(r"^-- KEYS\[(\d+)\] +(\S+) +(\w+)", header[0], re.MULTILINE):
        if only and name != only[1]:
            continue
        if kind in _LOOKS:
            lines.append(f"redis.call('{_LOOKS[kind]}', KEYS[{number}], '')")
        elif kind == "stream" and name != "events":  # `ledger` checks it if needed
            lines.append(f"redis.call('XLEN', KEYS[{number}])")
    used = set(re.findall(r"redis\.call\('(\w+)'", _with_needed(paragraphs, text))) & _WRITES
    if used and not only:
        lines.append("check_rights('" + "', '".join(sorted(used)) + "')")
    probe = "; ".join(lines)
    return text.replace("probe()", probe) if re.search(r"^probe\(\)", text, re.MULTILINE) else f"{probe}\n{text}"


def _with_needed(paragraphs: Sequence[str], text: str) -> str:
    """Put those paragraphs of the preludes in front of a script that it needs, directly or indirectly.

    Each paragraph defines one thing. Defining them all at each call would take Redis a microsecond.
    """
    for paragraph in reversed(paragraphs):
        defined = re.search(r"^local (?:function (\w+\()|(\w+))", paragraph, re.MULTILINE)
        if defined and re.search(rf"\b{re.escape(defined[1] or defined[2])}", re.sub("--.*", "", text)):
            text = f"{paragraph}\n\n{text}"
    return text


script = cache(Script)
"""Return the script with a name; each is read once."""


_TEXTS = frozenset({str, bytes})

# redis-py converts the replies to commands that it knows by a str name; with names in bytes, replies stay unchanged.
_PLAIN = frozenset({"HINCRBY", "HMGET", "MGET", "ZRANGE", b"XLEN", b"XRANGE", b"XREVRANGE"})


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
