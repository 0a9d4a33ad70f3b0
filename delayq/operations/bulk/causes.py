"""Causes: why dead letters died, in groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from delayq.model.causes import Cause, Causes, kind_of
from delayq.model.text import decode_text, encode_id
from delayq.model.units import from_ms
from delayq.model.validation import check_limit
from delayq.operations.bulk.search import count
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands

HOUR_MS = 3_600_000

_Died: TypeAlias = tuple[str, float, str | None, str | None]  # id, time of death (ms), reason, last error


def causes(
    context: QueueContext, most: int, shown: Callable[[str], str] = str, now_ms: float = math.inf
) -> Operation[Causes]:
    """Group up to `most` of the latest dead letters by cause.

    Args:
        now_ms: the end of the last hour.
        shown: returns the visible form of an error or a reason, such as without secrets; equal forms make one group.
    """
    check_limit(most, "most")
    total = yield from count(context, ["dead"])
    shards = yield from context.opened()
    share = -(-most // len(shards))
    found = yield from gather(*(_died(scripts, share, shown) for scripts in shards))
    died = (each for page in found for each in unwrap(page))
    latest = sorted(died, key=lambda each: each[1::-1], reverse=True)[:most]  # by time, then by id, as in Redis
    groups: dict[tuple[str | None, str | None], list[_Died]] = {}
    for each in latest:
        _, _, reason, error = each
        groups.setdefault((reason, kind_of(error)), []).append(each)
    return Causes(total=total, looked_at=len(latest), causes=list(_counted(groups, now_ms)))


def _counted(groups: dict[tuple[str | None, str | None], list[_Died]], now_ms: float) -> Iterator[Cause]:
    for (reason, kind), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield Cause(
            reason=reason,
            error=kind,
            count=len(members),
            first_at=from_ms(members[-1][1]),
            last_at=from_ms(members[0][1]),
            example=members[0][0],
            last_hour=sum(now_ms - HOUR_MS < died_ms for _, died_ms, _, _ in members),
            hour_before=sum(now_ms - 2 * HOUR_MS < died_ms <= now_ms - HOUR_MS for _, died_ms, _, _ in members),
        )


def _died(scripts: QueueCommands, most: int, shown: Callable[[str], str]) -> Operation[list[_Died]]:
    """Return the last dead letters of a shard, with what `shown` returns of them: it may take long, so page by page."""
    keys = scripts.keys
    found: dict[str, _Died] = {}
    for behind in range(0, most, MAX_IDS):
        size = min(MAX_IDS, most - behind)
        rows = yield from execute(scripts.ranked_page("dead", size, -behind - size))
        if not rows:
            break
        words = [encode_id(message_id) for message_id, _ in rows]
        fields: list[Any] = [Command(key, ("HMGET", key, *words), list) for key in (keys.reasons, keys.errors)]
        reasons, errors = map(unwrap, (yield fields))
        for (message_id, score), *texts in zip(rows, reasons, errors, strict=True):
            # By id, so that each is counted once while others come and go.
            reason, error = (text and shown(text) for text in map(decode_text, texts))
            found[message_id] = message_id, float(score), reason, error
    return list(found.values())
