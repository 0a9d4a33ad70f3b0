"""The consumers of a queue, and the messages that each holds."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from delayq.web import path_params, render, tab_counts
from delayq.web.consumer_rows import consumer_rows
from delayq.web.render import NavLink
from delayq.web.routes import VIEW, Page

MOST_LISTED = 100
MOST_HELD = 20


async def consumers(request: Request) -> Response:
    """List the consumers of a queue, live ones first."""
    queue = await path_params.queue_of(request)
    found = await consumer_rows(queue, MOST_LISTED, MOST_HELD)
    stats, many = await asyncio.gather(queue.stats(), tab_counts.schedules(queue))
    counts = tab_counts.known(stats, found.alive, many)
    return render.page(request, "consumers.html", found=found, stats=stats, now=stats.at, counts=counts)


TAB = NavLink("Consumers", "consumers")
ROUTES = [Page(VIEW, "/{server:name}/queues/{queue:name}/consumers", consumers, name="consumers")]
