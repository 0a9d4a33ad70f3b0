"""A command for Redis, and how its reply is read."""

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
        text = (folder / f"{name}.lua").read_text()
        self.text = _with_needed(paragraphs, _probed(paragraphs, text))
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_WRITES = frozenset(
    {"DEL", "UNLINK", "SET", "MSET", "PEXPIRE", "HSET", "HDEL", "HINCRBY", "SADD", "SREM", "XADD", "XACK", "XDEL"}
    | {"ZADD", "ZREM", "ZRANGESTORE", "ZREMRANGEBYRANK"}
)


_LOOKS = {"zset": "ZSCORE", "hash": "HGET", "set": "SISMEMBER"}


def _probed(paragraphs: Sequence[str], text: str) -> str:
    """Let a script that moves messages fail while nothing is changed yet.

    It fails if a key of its header has another type, or if the user may not run one of its commands: where the script
    calls `probe()`, or else at its beginning. A header with a line "Probes" has only the key looked at that it names.
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
        elif kind == "stream" and name != "events":  # `ledger` looks at it if need be
            lines.append(f"redis.call('XLEN', KEYS[{number}])")
    used = set(re.findall(r"redis\.call\('(\w+)'", _with_needed(paragraphs, text))) & _WRITES
    if used and not only:
        lines.append("check_rights('" + "', '".join(sorted(used)) + "')")
    probe = "; ".join(lines)
    return text.replace("probe()", probe) if re.search(r"^probe\(\)", text, re.MULTILINE) else f"{probe}\n{text}"


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


class Command(msgspec.Struct, Generic[T], frozen=True):
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


def identity(reply: Any) -> Any:
    """Read a reply as it came."""
    return reply
