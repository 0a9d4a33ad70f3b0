"""The limits of a queue: how much of them is in use, and what they hold back."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from delayq.aio import Queue
from delayq.operations.limit_use import MOST_KEYS, limit_use
from delayq.web import path_params, render

MOST_LISTED = 10


async def limits(request: Request) -> Response:
    """Show them again."""
    found = await used(await path_params.queue_of(request))
    return HTMLResponse(render.render(request, "_limits.html", **found))


async def used(queue: Queue) -> dict[str, Any]:
    """Return what the template of the limits needs."""
    return {"use": await queue.execute(limit_use), "most_listed": MOST_LISTED, "most_keys": MOST_KEYS}


ROUTES = [Route("/{server:name}/queues/{queue:name}/limits", limits, name="limits")]
