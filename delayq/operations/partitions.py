"""Divide a queue into parts that several readers read, by places that stay the same while messages come and go."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from delayq.model.placement import Row, State
from delayq.model.text import encode_id, is_foreign_id
from delayq.operations.fetch import fetch
from delayq.operations.paging import rank_of
from delayq.operations.queue_context import QueueContext
from delayq.operations.scan import in_any
from delayq.operations.walk import Place, Walk, place
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands
from delayq.protocol.replies import LARGE_BYTES


class ScoreRange(NamedTuple):
    """A range of a state of a shard: after one place, up to another one."""

    shard: int
    state: State
    behind: Place
    up_to: Place


class RankRange(NamedTuple):
    """The ranks from `first` until before `end`, in structure number `which`; both are numbered from 0."""

    which: int
    first: int
    end: int


def shard_count(context: QueueContext, create: bool = False) -> Operation[int | None]:
    """Return how many shards a queue has; None if Redis has not recorded it.

    Args:
        create: record the queue if it is new.
    """
    shards = yield from context.opened(create)
    return len(shards) if context.is_open else None


def plan(
    context: QueueContext, states: Sequence[State], after_ms: float, before_ms: float, most: int, least: int = 1
) -> Operation[list[list[ScoreRange]]]:
    """Divide the present messages into at most `most` parts of about equal size; none if there are no messages.

    A part may contain several states and shards, so that small ones do not need a task each. Messages that come later
    after the last one of a state are in no part, so the read ends however fast others send.

    Args:
        after_ms, before_ms: the scores: from `after_ms` on, until before `before_ms`.
        least: the least messages in a part, if there are several parts.
    """
    shards = yield from context.opened()
    where = [(number, state) for number in range(len(shards)) for state in states]
    keys = [shards[number].keys.state(state) for number, state in where]
    counting = [_count(key, bound) for key in keys for bound in (f"({after_ms}", _until(before_ms))]
    counts = [unwrap(result) for result in (yield counting)]
    skipped, ends = counts[::2], counts[1::2]
    sizes = [max(0, end - skip) for skip, end in zip(skipped, ends, strict=True)]
    parts = divide(sizes, max(1, min(most, sum(sizes) // least)))
    calls = []
    for each in (each for part in parts for each in part):
        number, state = where[each.which]
        if each.end == sizes[each.which]:  # messages sent before it meanwhile would give its rank to another one
            calls.append(shards[number].last(state, _until(before_ms)))
        else:
            calls.append(shards[number].ranked_page(state, 1, skipped[each.which] + each.end - 1))
    lasts = map(unwrap, (yield calls) if calls else [])
    reached = [(float(after_ms), b"")] * len(where)

    def score_range(which: int, last: list[Row]) -> ScoreRange:
        behind = reached[which]
        # There is no last one if many messages were removed meanwhile, so that the end has moved.
        reached[which] = max(behind, place(last[0]) if last else (float(before_ms), b""))
        return ScoreRange(*where[which], behind, reached[which])

    return [[score_range(each.which, next(lasts)) for each in part] for part in parts]


def divide(counts: Sequence[int], most: int) -> list[list[RankRange]]:
    """Divide structures of these sizes into at most `most` parts whose sizes differ by at most one."""
    total = sum(counts)
    bounds = [total * number // min(most, total) for number in range(min(most, total) + 1)] if total else []
    parts: list[list[RankRange]] = []
    for low, high in pairwise(bounds):
        part, offset = [], 0
        for which, count in enumerate(counts):
            first, end = max(low - offset, 0), min(high - offset, count)
            if first < end:
                part.append(RankRange(which, first, end))
            offset += count
        parts.append(part)
    return parts


def walk(context: QueueContext, part: ScoreRange) -> Operation[Walk]:
    """Find where a range begins."""
    scripts = (yield from context.opened())[part.shard]
    rank = yield from rank_of(scripts, part.state, part.behind)
    return Walk(scripts, part.state, MAX_IDS - 1, max(0, rank - 1), part.behind, part.up_to, sized=True)


def find(
    context: QueueContext, ids: Iterable[str], states: Sequence[State], after_ms: float, before_ms: float
) -> Operation[list[tuple[int, State, list[Row]]]]:
    """Return those of some messages that are in one of the states, with scores within the bounds as in `plan`.

    Returns:
        pages, with their shards and states; a message is in only one of them.
    """
    yield from context.opened()
    wanted = sorted(ids)
    pages: list[tuple[int, State, list[Row]]] = []
    for scripts, positions in context.by_shard(range(len(wanted)), wanted.__getitem__):
        for start in range(0, len(positions), MAX_IDS):
            words = [wanted[position] for position in positions[start : start + MAX_IDS]]
            calls = [Command(key, ("ZMSCORE", key, *words), list) for key in map(scripts.keys.state, states)]
            left = set(words)
            for state, reply in zip(states, (yield calls) if calls else [], strict=True):
                scores = dict(zip(words, unwrap(reply), strict=True))
                page = [(each, score) for each, score in scores.items() if score is not None and each in left]
                left.difference_update(each for each, _ in page)
                inside = [row for row in page if _is_between(float(row[1]), after_ms, before_ms)]
                if inside:
                    pages.append((context.shards.index(scripts), state, inside))
    return pages


def look_up(
    context: QueueContext,
    shard: int,
    state: State,
    rows: list[Row],
    fields: Collection[str],
    are_small: bool = False,
) -> Operation[tuple[list[Row], dict[str, list[Any]]]]:
    """Remove the next messages from `rows`, and look up these fields of them, as stored.

    If envelopes are needed, these are as many messages as one round trip may bring, at least one. Those that left the
    queue since they were seen in this state are left out.

    Args:
        fields: any of attempts, error, reason, cancelled and envelope.
        are_small: whether each has an envelope of at most `LARGE_BYTES`.

    Returns:
        the messages, and their data by field; a field that they do not have in this state is left out.
    """
    scripts = context.shards[shard]
    ids = [message_id for message_id, _ in rows]
    known: dict[str, list[Any]] = {}
    if "envelope" in fields:
        known["envelope"] = yield from fetch(scripts, ids, LARGE_BYTES if are_small else None)
        ids = ids[: len(known["envelope"])]
    taken, rows[: len(ids)] = rows[: len(ids)], []
    calls = _calls(scripts, state, ids, fields)
    replies = (yield list(calls.values())) if calls else []
    known |= zip(calls, map(unwrap, replies), strict=True)
    lost = [message_id for message_id, stored in zip(ids, known.get("envelope", ()), strict=False) if stored is None]
    gone = set(lost) - (yield from in_any(scripts, lost, [state]))
    if not gone:
        return taken, known
    kept = [number for number, message_id in enumerate(ids) if message_id not in gone]
    return [taken[number] for number in kept], {
        field: [values[number] for number in kept] for field, values in known.items()
    }


def _calls(scripts: QueueCommands, state: State, ids: list[str], fields: Collection[str]) -> dict[str, Command[Any]]:
    keys = scripts.keys
    words = list(map(encode_id, ids)) if is_foreign_id("".join(ids)) else ids
    hashes = {"attempts": keys.attempts, "error": keys.errors}
    if state == "dead":
        hashes["reason"] = keys.reasons
    calls = {field: Command(key, ("HMGET", key, *words), identity) for field, key in hashes.items() if field in fields}
    if state == "unack" and "cancelled" in fields:
        calls["cancelled"] = Command(keys.cancelled, ("SMISMEMBER", keys.cancelled, *words), identity)
    return calls


def _count(key: str, up_to: str) -> Command[int]:
    return Command(key, ("ZCOUNT", key, "-inf", up_to), int)


def _is_between(score: float, after_ms: float, before_ms: float) -> bool:
    return after_ms <= score and (score < before_ms or before_ms == math.inf)


def _until(before_ms: float) -> str:
    return "+inf" if before_ms == math.inf else f"({before_ms}"
