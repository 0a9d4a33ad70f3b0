"""Causes: of what the dead letters died, grouped."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from delayq.calls import Call, Steps, expect, one, text, together, word
from delayq.operations.choosing import Choice
from delayq.operations.core import Core
from delayq.operations.inspecting import check_limit
from delayq.operations.sweeping import count
from delayq.outcome import cause
from delayq.scripts import MAX_IDS, Scripts
from delayq.times import from_ms

MAX_KIND = 200  # characters

_NUMBER = re.compile(r"\d+")
_Died: TypeAlias = tuple[str, float, str | None, str | None]  # id, time of death (ms), reason, last error


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that died of the same.

    Attributes:
        reason: why they died, or None.
        error: the first line of their last errors, at most 200 characters, each number as ``#``; None where none is.
        count: how many.
        first_at, last_at: when the first and the last of them died.
        example: the id of the last one.
    """

    reason: str | None
    error: str | None
    count: int
    first_at: dt.datetime
    last_at: dt.datetime
    example: str

    @property
    def text(self) -> str:
        """Both in one text."""
        return cause(self.reason, self.error)


class Causes(msgspec.Struct, frozen=True, kw_only=True):
    """Of what the dead letters died.

    Attributes:
        total: how many dead letters there are.
        looked_at: how many of them were looked at, those that died last.
        causes: the most frequent first.
    """

    total: int
    looked_at: int
    causes: list[Cause]


def causes(core: Core, most: int) -> Steps[Causes]:
    """Group up to `most` dead letters, those that died last."""
    check_limit(most, "most")
    total = yield from count(core, ["dead"])
    shards = yield from core.opened()
    share = -(-most // len(shards))
    found = yield from together(*(_died(scripts, share) for scripts in shards))
    latest = sorted((died for each in found for died in expect(each)), key=lambda died: -died[1])[:most]
    groups: dict[tuple[str | None, str | None], list[_Died]] = {}
    for died in latest:
        groups.setdefault((died[2], kind_of(died[3])), []).append(died)
    return Causes(total=total, looked_at=len(latest), causes=list(_counted(groups)))


def kind_of(error: str | None) -> str | None:
    """Return the first line of an error without what differs from one message to the next: each number is a ``#``."""
    if not error:
        return None
    line = error.partition("\n")[0]
    return _NUMBER.sub("#", line)[:MAX_KIND]


def like(reason: str | None, kind: str | None) -> Choice:
    """Return what chooses the messages of a cause."""
    if kind is None:
        return Choice(reason=reason, bare=True)
    # A number is matched whole or not at all: else many a # in a row would be tried in as many ways as it has digits.
    text = r"(?:\d++|#)".join(map(re.escape, kind.split("#")))
    end = "" if len(kind) >= MAX_KIND else r"(?:\n|\Z)"
    return Choice(reason=reason, error=re.compile(rf"\A{text}{end}"))


def _counted(groups: dict[tuple[str | None, str | None], list[_Died]]) -> Iterator[Cause]:
    for (reason, kind), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield Cause(
            reason=reason,
            error=kind,
            count=len(members),
            first_at=from_ms(members[-1][1]),
            last_at=from_ms(members[0][1]),
            example=members[0][0],
        )


def _died(scripts: Scripts, most: int) -> Steps[list[_Died]]:
    """Return the last dead letters of a shard."""
    keys = scripts.keys
    found: dict[str, _Died] = {}
    for behind in range(0, most, MAX_IDS):
        size = min(MAX_IDS, most - behind)
        rows = yield from one(scripts.ranked_page("dead", size, -behind - size))
        if not rows:
            break
        words = [word(message_id) for message_id, _ in rows]
        fields: list[Any] = [Call(key, ("HMGET", key, *words), list) for key in (keys.reasons, keys.errors)]
        reasons, errors = map(expect, (yield fields))
        for (message_id, score), reason, error in zip(rows, reasons, errors, strict=True):
            found[message_id] = message_id, float(score), text(reason), text(error)  # once, though others come and go
    return list(found.values())
