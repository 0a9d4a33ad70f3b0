"""Explain why a message has not been delivered, or what became of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from delayq.errors import DelayqError, LoginRefused
from delayq.model import packed_events
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.event import NEWEST, Event, read
from delayq.model.explanation import Known
from delayq.model.explanation import expected as handed_out
from delayq.model.explanation import why as sentence
from delayq.model.placement import DELIVERABLE
from delayq.model.record import Entry
from delayq.model.validation import check_id
from delayq.operations import groups, presence, results
from delayq.operations.counts import samples
from delayq.operations.inspect import describe, stats
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import QueueCommands

RECENT = dt.timedelta(minutes=5)  # of whose deliveries an estimate is made
LEAST_SECONDS = 20.0  # of them, as a rate of less says little


def why(
    context: QueueContext,
    message_id: str,
    ledger: Sequence[Event] | None = None,
    shown: Callable[[str], str] = str,
) -> Operation[str]:
    """Read everything that may hold the message back, and explain; see `known`."""
    return sentence((yield from known(context, message_id, ledger, shown)))


def expected(context: QueueContext, message_id: str) -> Operation[dt.datetime | None]:
    """Return when a waiting message is probably handed out, if others delay it; None if that cannot be said."""
    return handed_out((yield from known(context, message_id, ())))


def known(
    context: QueueContext,
    message_id: str,
    ledger: Sequence[Event] | None = None,
    shown: Callable[[str], str] = str,
) -> Operation[Known]:
    """Read everything that may hold the message back.

    Args:
        ledger: the message's ledger entries, earliest first; if not given, they are searched.
        shown: returns the visible form of an error or a reason, such as without secrets.
    """
    check_id(message_id)
    shards = yield from context.opened()
    scripts, first = context.shard(message_id), shards[0]
    replies: list[Any] = yield [
        scripts.get(message_id),
        scripts.why(message_id),
        first.configuration(),
        first.last_seen(),
    ]
    found, standing, limits, last_seen = map(unwrap, replies)
    info = describe(context, message_id, found)
    rate = 0.0
    if info is not None and info.state in DELIVERABLE and standing.earlier and standing.paused_ms is None:
        rate = yield from _rate(context)
    if ledger is None and limits.events is not None and (info is None or info.state in ("garbage", "unack")):
        ledger = yield from _last_events(scripts, message_id)
    consumers: Sequence[ConsumerInfo] = ()
    counted = group = result = None
    if info is not None and info.state == "held" and info.group is not None:
        found_group = yield from groups.group(context, info.group)
        group = found_group and found_group[0]
    if info is not None and info.state == "unack":
        counted = yield from stats(context)
        if not ledger or info.timeout is None:  # their reports say the time limits of consumers
            consumers = yield from presence.consumers(context)
    if info is None and not ledger:
        result = yield from results.seen(context, message_id, None)
        if result is not None and result.error is not None:
            result = msgspec.structs.replace(result, error=result.error.shown(shown))
    if info is not None:
        error, reason = (text and shown(text) for text in (info.error, info.reason))
        progress = info.progress and info.progress._replace(text=shown(info.progress.text))
        info = msgspec.structs.replace(info, error=error, reason=reason, progress=progress)
    if ledger:
        ledger = [msgspec.structs.replace(each, reason=each.reason and shown(each.reason)) for each in ledger]
    return Known(
        context.name, message_id, info, standing, limits, last_seen, ledger, consumers, counted, group, result, rate
    )


def _rate(context: QueueContext) -> Operation[float]:
    """Return how many messages each shard has handed out per second in the last minutes; 0 if that is unknown."""
    try:
        now = yield from stats(context)
        past = yield from samples(context, now.at - RECENT)
    except LoginRefused:  # a user who may read the queue may lack the right to read its history
        return 0.0
    first = next((each.stats for each in past if each.stats.at >= now.at - RECENT), now)
    seconds = (now.at - first.at).total_seconds()
    handed = (now.delivered - now.released) - (first.delivered - first.released)
    return max(0, handed) / seconds / len(context.shards) if seconds >= LEAST_SECONDS else 0.0


def _last_events(scripts: QueueCommands, message_id: str) -> Operation[list[Event] | None]:
    """Return a message's ledger entries, oldest first, at least the recent ones; None if they cannot be read."""
    start = "+"
    while start:
        (looked,) = yield [scripts.history(message_id, start)]
        if isinstance(looked, DelayqError):  # a user who may read the queue may lack the right to read its ledger
            return None
        if known := _events(message_id, looked.entries)[::-1]:
            return known
        start = f"({looked.last}" if looked.last else ""
    return []


def history(context: QueueContext, message_id: str) -> Operation[list[Event]]:
    """Return the ledger entries of an id, oldest first. This searches the whole ledger, 500 entries a call."""
    found: list[Event] = []
    start = NEWEST
    while start:
        events, start = yield from look(context, message_id, start)
        found += events
    return found[::-1]


def look(context: QueueContext, message_id: str, start: str) -> Operation[tuple[list[Event], str]]:
    """Search 500 ledger entries; return those of the message, newest first, and where to continue ("": the end)."""
    check_id(message_id)
    yield from context.opened()
    looked = yield from execute(context.shard(message_id).history(message_id, start))
    return _events(message_id, looked.entries), f"({looked.last}" if looked.last else ""


def _events(message_id: str, entries: Sequence[Entry]) -> list[Event]:
    """Return the events of a message, without entries of other programs."""
    found = [read(entry, fields or ()) for entry, fields in packed_events.events(entries, reverse=True)]
    return [event for event in found if event is not None and event.id == message_id]
