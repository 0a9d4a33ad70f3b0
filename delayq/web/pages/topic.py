"""A topic: its groups, and its last records."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.model.record import Record
from delayq.operations.topics import group_admin, read
from delayq.web import path_params, render

MOST_RECORDS = 20
MOST_GROUPS = 200
MOST_TEXT = 300  # characters of a record


async def topic(request: Request) -> Response:
    """Show a topic; what is due but not appended is left so."""
    found = await path_params.topic_of(request)
    groups = await found.execute(group_admin.groups)
    records = await found.execute(read.records_range, "-", "+", MOST_RECORDS, True)
    return render.page(
        request,
        "topic.html",
        topic=found.name,
        length=await found.execute(read.length),
        groups=groups[:MOST_GROUPS],
        more_groups=max(0, len(groups) - MOST_GROUPS),
        records=[(record, text_of(record)) for record in records],
    )


def text_of(record: Record) -> str:
    """Return the beginning of what a record holds, as text."""
    text = str(record.values) if not record.body else record.body[: 4 * MOST_TEXT].decode(errors="replace")
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"


ROUTES = [Route("/{server:name}/topics/{topic:name}", topic, name="topic")]
