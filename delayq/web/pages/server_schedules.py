"""The schedules of all queues of a server."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.web import path_params, render
from delayq.web.queue_walk import walk
from delayq.web.render import NavLink
from delayq.web.routes import VIEW, Page
from delayq.web.schedule_rows import ScheduleRows, schedule_rows

MOST_OF_QUEUE = 50


async def server_schedules(request: Request) -> Response:
    """List the schedules of a server, a page of queues at a time."""
    server, after = path_params.server_of(request), request.query_params.get("after", "")
    redaction = render.redaction(request)

    async def look(queue: Queue) -> ScheduleRows:
        return await schedule_rows(queue, MOST_OF_QUEUE, times=1, redaction=redaction)

    page = await walk(server, after, look, lambda each: len(each.rows))
    return render.page(request, "server_schedules.html", page=page)


NAV = NavLink("Schedules", "server-schedules")
ROUTES = [Page(VIEW, "/{server:name}/schedules", server_schedules, name="server-schedules")]
