"""What the ledger knows of a message, as far as a user may see it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from delayq.aio import Queue
from delayq.model.event import Event
from delayq.operations import explain
from delayq.web.redaction import Redaction


async def look(
    queue: Queue, message_id: str, place: str, seconds: float, redaction: Redaction
) -> tuple[list[Event], str]:
    """Search the ledger for some time; return the message's events, the latest first, and where to continue, or ""."""
    until, events = time.monotonic() + seconds, list[Event]()
    while place:
        more, place = await queue.execute(explain.look, message_id, place)
        events += map(redaction.event, more)
        if time.monotonic() >= until:
            break
    return events, place


async def why(queue: Queue, message_id: str, events: Sequence[Event] | None, redaction: Redaction) -> str:
    """Say why a message has not been delivered, or what happened to it.

    Args:
        events: what the ledger knows of it, the earliest first; if not given, it is searched.
    """
    return await queue.execute(explain.why, message_id, events, redaction.text)
