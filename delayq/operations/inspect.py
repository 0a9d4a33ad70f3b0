"""Read what a queue holds; nothing here changes it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from delayq.errors import LoginRefused, UnreadableEnvelope
from delayq.model import health, task_runs
from delayq.model.configuration import Usage
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.delivery import Deliveries
from delayq.model.envelope import parse
from delayq.model.handler_progress import decoded as decoded_progress
from delayq.model.message_info import MessageInfo, content
from delayq.model.occurrence import HOME
from delayq.model.placement import DELIVERABLE, STATES, State, check_state
from delayq.model.queue_stats import Counts, QueueStats, buckets
from delayq.model.schedule import LATE_MS
from delayq.model.units import from_ms
from delayq.model.validation import check_id, check_limit
from delayq.operations import presence
from delayq.operations.fetch import find
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.operations.walk import Walk
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands
from delayq.protocol.replies import StoredMessage

GONE_PAGES = 10


def now(context: QueueContext) -> Operation[dt.datetime]:
    """Read the server's clock."""
    yield from context.opened()
    return from_ms((yield from server_ms(context)))


def stats(context: QueueContext) -> Operation[QueueStats]:
    """Count everything."""
    shards = yield from context.opened()
    return summed(context.name, [unwrap(result) for result in (yield [scripts.stats() for scripts in shards])])


def reading(context: QueueContext) -> Operation[tuple[QueueStats, list[ConsumerInfo], Usage]]:
    """Read in shared round trips what `stats`, `presence.consumers` and `usage` return."""
    yield from context.opened()
    counts, consumers, used = yield from gather(stats(context), presence.consumers(context), usage(context))
    return unwrap(counts), unwrap(consumers), unwrap(used)


def lease_ends(context: QueueContext, ids: Sequence[str]) -> Operation[list[dt.datetime | None]]:
    """Return when the leases of these messages end, in their order; None for one that is not running."""
    yield from context.opened()
    keys = [context.shard(message_id).keys.unack for message_id in ids]
    calls = [Command(key, ("ZSCORE", key, message_id), identity) for key, message_id in zip(keys, ids, strict=True)]
    scores = map(unwrap, (yield calls))
    return [None if score is None else from_ms(float(score)) for score in scores]


def summed(name: str, shards: Sequence[Counts]) -> QueueStats:
    """Add up the counts of a queue's shards."""
    counters: dict[str, int] = shards[0].counters | shards[0].counts
    for shard in shards[1:]:
        for counter, value in [*shard.counts.items(), *shard.counters.items()]:
            counters[counter] = counters.get(counter, 0) + value
    paused = [(shard.paused_ms, shard.paused_until_ms) for shard in shards if shard.paused_ms is not None]
    ends = [until for _, until in paused if until is not None]
    heads = [shard.heads_ms["pending"] for shard in shards if "pending" in shard.heads_ms]
    due = [
        score for shard in shards for score in map(shard.heads_ms.get, DELIVERABLE) if score and score <= shard.now_ms
    ]
    pending_due, retry_due = sum(shard.pending_due for shard in shards), sum(shard.retry_due for shard in shards)
    return QueueStats(
        queue=name,
        at=from_ms(max(shard.now_ms for shard in shards)),
        scheduled=counters["pending"] - pending_due,
        due=pending_due + counters["ready"] + retry_due,
        retrying=counters["retry"] - retry_due,
        paused_since=from_ms(min(since for since, _ in paused)) if paused else None,
        paused_until=from_ms(max(ends)) if paused and len(ends) == len(paused) else None,
        next_due_at=from_ms(min(heads)) if heads else None,
        oldest_due_at=from_ms(min(due)) if due else None,
        lateness=buckets(counters, "late"),
        handler_time=buckets(counters, "took"),
        slots_missed=counters.get("slots_missed", 0),
        tasks=task_runs.read(counters),
        **{name: counters.get(name, 0) for name in (*STATES, *QueueStats.COUNTERS)},
    )


def usage(context: QueueContext) -> Operation[Usage]:
    """Return how much of its limits the queue uses, and how late its schedules are. With shards there are no limits."""
    shards = yield from context.opened()
    return (yield from execute(shards[HOME].usage(LATE_MS)))


def is_held_back(context: QueueContext) -> Operation[bool]:
    """Whether a pause, or a limit that is used up, holds back all due messages, so that none of them is late.

    False if the Redis user may not read that: a scheduler needs no right to count messages.
    """
    try:
        counted = yield from stats(context)
        used = yield from usage(context)
    except LoginRefused:
        return False
    return health.is_held_back(counted, used)


def get(context: QueueContext, message_id: str) -> Operation[MessageInfo | None]:
    """Find a message; None if it does not exist or is garbage."""
    check_id(message_id)
    yield from context.opened()
    found = yield from execute(context.shard(message_id).get(message_id))
    info = describe(context, message_id, found)
    return None if info is None or info.state == "garbage" else info


def peek(context: QueueContext, state: State, limit: int) -> Operation[list[MessageInfo]]:
    """Look at up to `limit` messages of a state, lowest score first."""
    check_state(state)
    check_limit(limit)
    shards = yield from context.opened()
    found: list[MessageInfo] = []
    for scripts in shards:
        found += yield from _page(context, scripts, state, limit)
    return sorted(found, key=_when)[:limit]


def _page(context: QueueContext, scripts: QueueCommands, state: State, limit: int) -> Operation[list[MessageInfo]]:
    """Describe the first messages.

    Messages that leave before they can be described are replaced by later ones, within bounds, as messages might leave
    faster than they are read.
    """
    infos: dict[str, MessageInfo] = {}  # by id, so that a message that moves meanwhile appears once
    size = min(MAX_IDS, limit)
    walk = Walk(scripts, state, size)
    left = limit + GONE_PAGES * size
    while (wanted := min(limit - len(infos), left)) > 0 and (rows := (yield from walk.page(wanted))):
        described = yield from _describe_all(context, scripts, [message_id for message_id, _ in rows], state)
        infos |= {info.id: info for info in described if info.id not in infos}
        left -= len(rows)
    return list(infos.values())


def _describe_all(
    context: QueueContext, scripts: QueueCommands, ids: list[str], state: State
) -> Operation[list[MessageInfo]]:
    """Describe the messages of `ids` that are still in `state`."""
    results = yield from find(scripts, ids)
    infos = (describe(context, message_id, found) for message_id, found in zip(ids, results, strict=True))
    return [info for info in infos if info is not None and info.state == state]


def find_all(context: QueueContext, ids: list[str]) -> Operation[list[StoredMessage]]:
    """Find messages."""
    found: dict[str, StoredMessage] = {}
    for scripts, positions in context.by_shard(range(len(ids)), ids.__getitem__):
        of_shard = [ids[position] for position in positions]
        found |= zip(of_shard, (yield from find(scripts, of_shard)), strict=True)
    return [found[each] for each in ids]


def describe(context: QueueContext, message_id: str, found: StoredMessage) -> MessageInfo | None:
    """Make the info from what `find` read; None if the message is in no structure."""
    if not found.scores:
        return None
    state, score = next(iter(found.scores.items()))
    before = Deliveries.read(found.deliveries)
    at, decoded = from_ms(score), _decoded(found.stored)
    return MessageInfo(
        id=message_id,
        queue=context.name,
        state=state,
        due_at=at if state in DELIVERABLE else None,
        lease_until=at if state == "unack" else None,
        died_at=at if state == "dead" else None,
        attempts=before.past + (state == "unack"),
        retries_used=before.retries_of(decoded.get("max_retries")),
        error=found.error or None,
        reason=found.reason,
        cancelled=found.cancelled,
        member_of=found.group,
        progress=decoded_progress(found.progress),
        **decoded,
    )


def _decoded(stored: bytes | None) -> dict[str, Any]:
    try:
        return content(*parse(stored or b""))
    except UnreadableEnvelope:
        return {}


def _when(info: MessageInfo) -> float:
    at = info.due_at or info.lease_until or info.died_at
    return at.timestamp() if at else 0.0
