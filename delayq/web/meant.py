"""The messages that an action applies to, for its confirmation: their number, examples and range of times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from delayq.aio import Queue
from delayq.model.choice import Found
from delayq.model.message_info import MessageInfo
from delayq.model.units import from_ms
from delayq.web import job_work
from delayq.web.filters import MessageFilter
from delayq.web.redaction import in_turns

COUNT_SECONDS = 0.06  # that a confirmation may spend on counting
MOST_EXAMPLES = 5
MOST_GROUPED = 5000  # dead letters that are grouped by cause
LARGEST = 16 * 1024  # bytes of a payload; an example reads no larger one for its preview


async def look(queue: Queue, wanted: MessageFilter, ids: Sequence[str] = ()) -> Found:
    """Count for a moment the messages that a filter selects, or these; describe only a few examples."""
    if ids:
        found = await wanted.find_ids(queue, ids, MOST_EXAMPLES, LARGEST)
        found = msgspec.structs.replace(found, matched=len(ids))
    elif wanted.is_empty:
        found = await _all(queue, wanted)
    else:
        found = await wanted.find(queue, seconds=COUNT_SECONDS, shown=MOST_EXAMPLES, largest=LARGEST)
    return msgspec.structs.replace(found, messages=await in_turns(wanted.redaction.info, found.messages))


async def _all(queue: Queue, wanted: MessageFilter) -> Found:
    page = await queue.page(wanted.state, limit=MOST_EXAMPLES, largest=LARGEST)
    _, last_ms = await job_work.extent(queue, wanted.state)
    return Found(
        messages=page.messages,
        sizes=page.sizes,
        matched=page.total,
        looked_at=page.total,
        total=page.total,
        first_at=at(page.messages[0]) if page.messages else None,
        last_at=None if last_ms is None else from_ms(last_ms),
    )


def at(info: MessageInfo) -> dt.datetime | None:
    """Return the time that lists sort a message by: when it is due, its lease ends, or it died."""
    return info.due_at or info.lease_until or info.died_at
