"""Recounting: what the ledger of a queue tells of a message."""

from __future__ import annotations

from delayq.calls import Steps, one
from delayq.ledger import Event, read
from delayq.names import check_id
from delayq.operations.core import Core


def history(core: Core, message_id: str) -> Steps[list[Event]]:
    """Return what the ledger tells of an id, oldest first: all of it is looked through, 500 entries a call."""
    check_id(message_id)
    yield from core.opened()
    scripts = core.shard(message_id)
    found: list[Event] = []
    start = "+"
    while start:
        looked = yield from one(scripts.history(message_id, start))
        events = [read(entry, fields) for entry, fields in looked.entries]
        found += [event for event in events if event is not None]  # another program's entries tell nothing
        start = f"({looked.last}" if looked.last else ""
    return found[::-1]
