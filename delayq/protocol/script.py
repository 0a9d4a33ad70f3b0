"""The Lua scripts of this package: each one's text, digest and keys."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

_WRITES = frozenset(
    {"DEL", "UNLINK", "SET", "MSET", "PEXPIRE", "HSET", "HDEL", "HINCRBY", "SADD", "SREM", "XADD", "XACK", "XDEL"}
    | {"ZADD", "ZREM", "ZRANGESTORE", "ZREMRANGEBYRANK"}
)
_OF_GROUPS = {"members", "groups", "held", "pending"}
_LOOKS = {"zset": "ZSCORE", "hash": "HGET", "set": "SISMEMBER"}


class Script:
    """A script.

    Args:
        name: the file's name, with its folder if there is one, as in ``topics/publish``.

    Attributes:
        name: as given.
        text: with what it needs of the preludes.
        sha: the digest that Redis knows it by.
        keys: the names of its keys, in order, as its header has them, with underscores for colons. Keys whose number
            varies, such as payloads, follow.
    """

    def __init__(self, name: str) -> None:
        folder = files("delayq.lua")
        self.name = name
        paragraphs = [*_paragraphs(""), *(_paragraphs(name.partition("/")[0]) if "/" in name else ())]
        text = (folder / f"{name}.lua").read_text("utf-8")
        header = re.match(r"(?:--.*\n)*", text)
        keys = re.findall(r"^-- KEYS\[(\d+)\] +(\S+) +(\w+)", header[0] if header else "", re.MULTILINE)
        self.keys = tuple(key.replace(":", "_") for _, key, _ in keys)
        self.text = _with_needed(paragraphs, _probed(paragraphs, text, header[0] if header else "", keys))
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class _Paragraph:
    """A paragraph of a prelude, which defines one thing: a function or a value.

    Attributes:
        defines: its name, with "(" if it is a function.
        uses: as in `_uses`.
    """

    def __init__(self, text: str) -> None:
        defined = re.search(r"^local (?:function (\w+\()|(\w+))", text, re.MULTILINE)
        self.text = text
        self.defines = (defined[1] or defined[2]) if defined else ""
        self.uses = _uses(text)


@cache
def _paragraphs(folder: str) -> tuple[_Paragraph, ...]:
    return tuple(map(_Paragraph, (files("delayq.lua") / folder / "prelude.lua").read_text("utf-8").split("\n\n")))


def _uses(text: str) -> set[str]:
    """Return the words outside of comments; those before a "(" also with it."""
    code = re.sub("--.*", "", text)
    return {*re.findall(r"\w+", code), *re.findall(r"\w+\(", code)}


def _probed(paragraphs: Sequence[_Paragraph], text: str, header: str, keys: Sequence[tuple[str, str, str]]) -> str:
    """Make a script that moves messages fail before it changes anything.

    It fails if a key in its header has another type, or if the user may not run one of its commands. The check is where
    the script calls `probe()`, or else at its beginning. A "Probes" line in the header limits the check to
    the key of that name; with "none", nothing is checked. If the script asks whether it is `grouped`, that checks the
    key `members`, those of groups after it, and what `ended` does with them: only queues with groups pay for it.
    """
    if not re.search(r"^-- State .*->", header, re.MULTILINE):
        return text
    only = re.search(r"^-- Probes +(\w+)", header, re.MULTILINE)
    lines = []
    first = [name for _, name, _ in keys].index("members") if "grouped(" in text else len(keys)
    for position, (number, name, kind) in enumerate(keys):
        if (only and name != only[1]) or (position >= first and name in _OF_GROUPS):
            continue
        if kind in _LOOKS:
            lines.append(f"redis.call('{_LOOKS[kind]}', KEYS[{number}], '')")
        elif kind == "stream" and name != "events":  # `ledger` checks it if needed
            lines.append(f"redis.call('XLEN', KEYS[{number}])")
    later = {"ended(", "grouped("} if "grouped(" in text else ()  # `grouped` checks these
    checked = [each for each in paragraphs if each.defines not in later]
    used = set(re.findall(r"redis\.call\('(\w+)'", _with_needed(checked, text))) & _WRITES
    if used and not only:
        lines.append("check_rights('" + "', '".join(sorted(used)) + "')")
    probe = "; ".join(lines)
    return text.replace("probe()", probe) if re.search(r"^probe\(\)", text, re.MULTILINE) else f"{probe}\n{text}"


def _with_needed(paragraphs: Sequence[_Paragraph], text: str) -> str:
    """Put those paragraphs of the preludes in front of a script that it needs, directly or indirectly.

    Defining them all at each call would take Redis a microsecond.
    """
    uses = _uses(text)
    for paragraph in reversed(paragraphs):
        if paragraph.defines in uses:
            text = f"{paragraph.text}\n\n{text}"
            uses |= paragraph.uses
    return text


files("delayq.lua")  # imports the folder here: the first call must not, see `delayq.late_import`
script = cache(Script)
"""Return the script with a name; each is read once."""
