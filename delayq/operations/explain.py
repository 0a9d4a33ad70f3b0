"""Explain why a message has not been delivered, or what became of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from delayq.errors import DelayqError
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.event import Event, read
from delayq.model.explanation import Known
from delayq.model.explanation import why as sentence
from delayq.model.validation import check_id
from delayq.operations import presence
from delayq.operations.inspect import describe
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import QueueCommands


def why(context: QueueContext, message_id: str, ledger: Sequence[Event] | None = None) -> Operation[str]:
    """Read all that it may be, and tell it.

    Args:
        ledger: what it tells of the message, earliest first, where that is known; else it is looked through.
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
    if ledger is None and limits.events is not None and (info is None or info.state in ("garbage", "unack")):
        ledger = yield from _last_told(scripts, message_id)
    consumers: Sequence[ConsumerInfo] = ()
    if not ledger and info is not None and info.state == "unack":
        consumers = yield from presence.consumers(context)
    return sentence(Known(context.name, message_id, info, standing, limits, last_seen, ledger, consumers))


def _last_told(scripts: QueueCommands, message_id: str) -> Operation[list[Event] | None]:
    """Return what the ledger tells of a message, oldest first, of late at least; None when it cannot be read."""
    start = "+"
    while start:
        (looked,) = yield [scripts.history(message_id, start)]
        if isinstance(looked, DelayqError):  # who may look at the queue need not have the right to its ledger
            return None
        events = [read(entry, fields) for entry, fields in looked.entries]
        if told := [event for event in reversed(events) if event is not None]:
            return told
        start = f"({looked.last}" if looked.last else ""
    return []


NEWEST = "+"
"""Where a look through the ledger begins."""

PLACE = re.compile(r"\((?P<ms>\d{1,15})-\d{1,19}", re.ASCII)
"""Where a look may go on, as `look` has returned it."""


def history(context: QueueContext, message_id: str) -> Operation[list[Event]]:
    """Return what the ledger tells of an id, oldest first: all of it is looked through, 500 entries a call."""
    found: list[Event] = []
    start = NEWEST
    while start:
        events, start = yield from look(context, message_id, start)
        found += events
    return found[::-1]


def look(context: QueueContext, message_id: str, start: str) -> Operation[tuple[list[Event], str]]:
    """Look through 500 entries of the ledger; return what they tell, newest first, and where to go on ("": the end)."""
    check_id(message_id)
    yield from context.opened()
    looked = yield from execute(context.shard(message_id).history(message_id, start))
    events = [read(entry, fields) for entry, fields in looked.entries]
    # Another program's entries tell nothing.
    return [event for event in events if event is not None], f"({looked.last}" if looked.last else ""
