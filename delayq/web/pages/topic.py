"""A topic: its groups, and its last records."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.topics import grouping, reading
from delayq.topics.record import Record
from delayq.web import reaching, rendering

MOST_RECORDS = 20
MOST_GROUPS = 200
MOST_TEXT = 300  # characters of a record


async def topic(request: Request) -> Response:
    """Show a topic; what is due but not appended is left so."""
    found = await reaching.topic_of(request)
    do = found.connection.do
    groups = await do(grouping.groups(found.core))
    records = await do(reading.records_range(found.core, "-", "+", MOST_RECORDS, True))
    return rendering.page(
        request,
        "topic.html",
        topic=found.name,
        length=await do(reading.length(found.core)),
        groups=groups[:MOST_GROUPS],
        more_groups=max(0, len(groups) - MOST_GROUPS),
        records=[(record, text_of(record)) for record in records],
    )


def text_of(record: Record) -> str:
    """Return the beginning of what a record holds, as text."""
    text = str(record.values) if not record.body else record.body[: 4 * MOST_TEXT].decode(errors="replace")
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"


ROUTES = [Route("/{server:name}/topics/{topic:name}", topic, name="topic")]
