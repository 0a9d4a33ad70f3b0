"""The limits of a queue: how much of each is in use, and how many messages it holds back."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from delayq.aio import Queue
from delayq.operations.limit_use import MOST_KEYS, limit_use
from delayq.web import path_params, render
from delayq.web.redaction import REDACTED
from delayq.web.routes import VIEW, Page

MOST_LISTED = 10


async def limits(request: Request) -> Response:
    """Return the card of the limits."""
    found = await used(request, await path_params.queue_of(request))
    return HTMLResponse(render.render(request, "_limits.html", **found))


async def used(request: Request, queue: Queue) -> dict[str, Any]:
    """Return the variables of the limits' template; redaction hides all keys, since they may hold hidden values."""
    use, is_redacted = await queue.execute(limit_use), bool(render.redaction(request))
    if use is not None and use.keys and is_redacted:
        use = use._replace(keys=tuple(each._replace(key=REDACTED) for each in use.keys))
    return {"use": use, "most_listed": MOST_LISTED, "most_keys": MOST_KEYS}


ROUTES = [Page(VIEW, "/{server:name}/queues/{queue:name}/limits", limits, name="limits")]
