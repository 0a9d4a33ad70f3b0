"""The consumers of all queues of a server."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.web import path_params, render
from delayq.web.consumer_rows import ConsumerRows, consumer_rows
from delayq.web.queue_walk import walk
from delayq.web.render import NavLink
from delayq.web.routes import VIEW, Page

MOST_OF_QUEUE = 50
MOST_HELD = 5


async def server_consumers(request: Request) -> Response:
    """List the consumers of a server, a page of queues at a time."""
    server, after = path_params.server_of(request), request.query_params.get("after", "")
    page = await walk(server, after, _look, lambda each: len(each.rows))
    return render.page(request, "server_consumers.html", page=page)


async def _look(queue: Queue) -> ConsumerRows:
    return await consumer_rows(queue, MOST_OF_QUEUE, MOST_HELD)


NAV = NavLink("Consumers", "server-consumers")
ROUTES = [Page(VIEW, "/{server:name}/consumers", server_consumers, name="server-consumers")]
