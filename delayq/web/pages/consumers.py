"""The consumers of a queue, or of all queues of a server, and the messages that each holds."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.web import path_params, render, tab_counts
from delayq.web.consumer_rows import ConsumerRows, consumer_rows
from delayq.web.queue_walk import walk
from delayq.web.render import NavLink
from delayq.web.routes import VIEW, Page

MOST_LISTED = 100
MOST_HELD = 20
MOST_OF_QUEUE = 50  # in the list of a server
MOST_HELD_OF_QUEUE = 5


async def consumers(request: Request) -> Response:
    """List the consumers of a queue, live ones first."""
    queue = await path_params.queue_of(request)
    found = await consumer_rows(queue, MOST_LISTED, MOST_HELD)
    stats, many = await asyncio.gather(queue.stats(), tab_counts.schedules(queue))
    counts = tab_counts.known(stats, found.alive, many)
    return render.page(request, "consumers.html", found=found, stats=stats, now=stats.at, counts=counts)


async def server_consumers(request: Request) -> Response:
    """List the consumers of a server, a page of queues at a time."""
    server, after = path_params.server_of(request), request.query_params.get("after", "")
    page = await walk(server, after, _look, lambda each: len(each.rows))
    return render.page(request, "server_consumers.html", page=page)


async def _look(queue: Queue) -> ConsumerRows:
    return await consumer_rows(queue, MOST_OF_QUEUE, MOST_HELD_OF_QUEUE)


NAV = NavLink("Consumers", "server-consumers")
TAB = NavLink("Consumers", "consumers")
ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/consumers", consumers, name="consumers"),
    Page(VIEW, "/{server:name}/consumers", server_consumers, name="server-consumers"),
]
