"""Recounting: what the ledger of a queue tells of a message."""

from __future__ import annotations

from delayq.calls import Steps, one
from delayq.ledger import Event, read
from delayq.names import check_id
from delayq.operations.core import Core

NEWEST = "+"
"""Where a look through the ledger begins."""


def history(core: Core, message_id: str) -> Steps[list[Event]]:
    """Return what the ledger tells of an id, oldest first: all of it is looked through, 500 entries a call."""
    found: list[Event] = []
    start = NEWEST
    while start:
        events, start = yield from look(core, message_id, start)
        found += events
    return found[::-1]


def look(core: Core, message_id: str, start: str) -> Steps[tuple[list[Event], str]]:
    """Look through 500 entries of the ledger; return what they tell, newest first, and where to go on ("": the end)."""
    check_id(message_id)
    yield from core.opened()
    looked = yield from one(core.shard(message_id).history(message_id, start))
    events = [read(entry, fields) for entry, fields in looked.entries]
    # Another program's entries tell nothing.
    return [event for event in events if event is not None], f"({looked.last}" if looked.last else ""
