"""Dead letters: of what they died, and bringing them back."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.operations.bulk.causes import causes
from delayq.web import path_params, render, tab_counts
from delayq.web.render import NavLink

MOST = 5000
"""Dead letters that are grouped."""


async def dead(request: Request) -> Response:
    """Show the causes, the most frequent first."""
    queue = await path_params.queue_of(request)
    found = await queue.execute(causes, MOST, render.redaction(request).text)
    stats, counts = await tab_counts.count(queue)
    return render.page(request, "dead.html", found=found, now=stats.at, counts=counts)


TAB = NavLink("Dead letters", "dead")
ROUTES = [Route("/{server:name}/queues/{queue:name}/dead", dead, name="dead")]
