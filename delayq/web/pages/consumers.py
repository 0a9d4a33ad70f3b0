"""Consumers: who takes the messages of a queue, and what each holds."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.operations.schedules import count as count_schedules
from delayq.web import path_params, render, tab_counts
from delayq.web.render import NavLink

MOST_LISTED = 100
MOST_HELD = 20


async def consumers(request: Request) -> Response:
    """List the consumers, those that live first."""
    queue = await path_params.queue_of(request)
    found = sorted(await queue.consumers(), key=lambda each: (not each.is_alive, each.name))
    stats, many = await asyncio.gather(queue.stats(), queue.execute(count_schedules))
    return render.page(
        request,
        "consumers.html",
        rows=found[:MOST_LISTED],
        total=len(found),
        most_held=MOST_HELD,
        stats=stats,
        now=stats.at,
        counts=tab_counts.known(stats, sum(each.is_alive for each in found), many),
    )


TAB = NavLink("Consumers", "consumers")
ROUTES = [Route("/{server:name}/queues/{queue:name}/consumers", consumers, name="consumers")]
