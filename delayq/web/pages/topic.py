"""A topic: its groups, and its last records."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.operations.topics import group_admin, read
from delayq.web import path_params, render
from delayq.web.payloads import preview_of_record

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
        records=[(record, preview_of_record(record, MOST_TEXT)) for record in records],
    )


ROUTES = [Route("/{server:name}/topics/{topic:name}", topic, name="topic")]
