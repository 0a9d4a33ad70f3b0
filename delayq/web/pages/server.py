"""A server: its memory, persistence and clock; and checks of its queues with the doctor."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response

from delayq.aio.doctor import server_health
from delayq.web import job_work, path_params, render
from delayq.web.error_pages import back_on
from delayq.web.render import NavLink
from delayq.web.request_jobs import asked_once, shown
from delayq.web.routes import ACT, VIEW, Page
from delayq.web.servers import ASKED_AS


async def server(request: Request) -> Response:
    """Show the details of a server."""
    found = path_params.server_of(request)
    names = await found.queue_names()
    queue = await found.queue(names[0] if names else ASKED_AS)
    health = await server_health(queue)
    return render.page(
        request,
        "server.html",
        found=health,
        dangers=list(health.dangers()),
        names=names[:MOST_LISTED],
        total=len(names),
        is_partial=found.is_partial,
        search_error=found.search_error,
        once=secrets.token_urlsafe(12),
    )


@back_on(server)
async def examine(request: Request) -> Response:
    """Check a queue with the doctor, as a job."""
    queue = await path_params.queue_of(request)
    return shown(request, await asked_once(request, lambda once: job_work.start_examination(request, queue, once)))


MOST_LISTED = 200

NAV = NavLink("Server", "server")
ROUTES = [
    Page(VIEW, "/{server:name}/server", server, name="server"),
    Page(ACT, "/{server:name}/queues/{queue:name}/examine", examine, name="examine"),
]
