"""Explaining: why a message has not been delivered, or what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.calls import Steps, expect
from delayq.errors import DelayqError
from delayq.ledger import Event, read
from delayq.names import check_id
from delayq.operations.core import Core
from delayq.operations.inspecting import describe
from delayq.scripts import Scripts
from delayq.why import Known
from delayq.why import why as sentence


def why(core: Core, message_id: str, ledger: Sequence[Event] | None = None) -> Steps[str]:
    """Read all that it may be, and tell it.

    Args:
        ledger: what it tells of the message, earliest first, where that is known; else it is looked through.
    """
    check_id(message_id)
    shards = yield from core.opened()
    scripts, first = core.shard(message_id), shards[0]
    replies: list[Any] = yield [
        scripts.find(message_id),
        scripts.why(message_id),
        first.configuration(),
        first.last_seen(),
    ]
    found, standing, limits, last_seen = map(expect, replies)
    info = describe(core, message_id, found)
    if ledger is None and limits.events is not None and (info is None or info.state in ("garbage", "unack")):
        ledger = yield from _last_told(scripts, message_id)
    return sentence(Known(core.name, message_id, info, standing, limits, last_seen, ledger))


def _last_told(scripts: Scripts, message_id: str) -> Steps[list[Event] | None]:
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
