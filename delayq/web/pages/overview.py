"""The overview: a live page of the queues of all servers, or of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.web import audit, path_params, render, sse
from delayq.web.filters import quoted
from delayq.web.live_part import LivePart
from delayq.web.poller import ServerPoller, ServerSnapshot
from delayq.web.queue_list import LEAST_PAGE, PAGE, SORTS, QueueListView
from delayq.web.render import NavLink
from delayq.web.request_context import visit
from delayq.web.routes import VIEW, Page

MOST_UNFILTERED = 12
"""With more queues than this, the page has a filter by name."""


async def overview(request: Request) -> Response:
    """Show the first queues of each server."""
    watches: dict[str, ServerPoller] = request.app.state.watches
    return await _page(request, watches, max(PAGE // len(watches), LEAST_PAGE))


async def queues(request: Request) -> Response:
    """Show a page of one server's queues."""
    name = path_params.server_of(request).name
    return await _page(request, {name: request.app.state.watches[name]}, PAGE)


async def follow(request: Request) -> Response | sse.EventStream:
    """Stream the first queues of each server, or a page of one server's queues, whenever they change."""
    watches: dict[str, ServerPoller] = request.app.state.watches
    if "server" in request.path_params:
        name = path_params.server_of(request).name
        watches = {name: watches[name]}
    view = QueueListView.of(request.query_params)
    return sse.stream(request, *(_parts(request, watch, view) for watch in watches.values()))


async def _page(request: Request, watches: Mapping[str, ServerPoller], rows: int) -> Response:
    view = QueueListView.of(request.query_params, rows)
    sights = await asyncio.gather(*(watch.now(view) for watch in watches.values()))
    status = 503 if all(sight.error for sight in sights) else 200
    has_filter = not view.is_of_all or any(sight.total > MOST_UNFILTERED for sight in sights)
    of_one = {name: request.path_params[name] for name in ("server",) if name in request.path_params}
    stream = render.url(request, "queues-live" if of_one else "live", **of_one)
    asked = render.query(start=view.start, rows=view.rows, **view.fields())
    known = {
        "sights": dict(zip(watches, sights, strict=True)),
        "view": view,
        "has_filter": has_filter,
        "page": "queues" if of_one else "overview",
        "sorts": SORTS,
        "stream": f"{stream}?{asked}",
    }
    return render.page(request, "overview.html", status, **known)


async def _parts(request: Request, watch: ServerPoller, view: QueueListView) -> AsyncGenerator[LivePart, None]:
    async for sight in watch.following(view):
        yield _part(request, watch.server.name, sight, view)


def _part(request: Request, server: str, sight: ServerSnapshot, view: QueueListView) -> LivePart:
    """Return the part; it is rendered once for all browsers with the same prefix and rights."""
    seen_by = request.scope.get("root_path", ""), visit(request).may_act
    if seen_by not in sight.parts:
        html = render.render(request, "_queues.html", server=server, sight=sight, view=view)
        sight.parts[seen_by] = LivePart.of(f"queues#{quoted(server)}", html, not sight.error)
    return sight.parts[seen_by]


def returning(request: Request) -> Callable[[str], RedirectResponse]:
    """Return a function that leads back, with a notice, to the page of the form: the list as it was, or the queue.

    Raises:
        InvalidInput: the form names an invalid list.
    """
    form = visit(request).form
    view = QueueListView.of(dict(parse_qsl(form.get("view", ""))))
    asked = render.query(start=view.start, **view.fields())
    if form.get("page") == "overview":
        return lambda told: audit.back(request, told, "overview", asked, server=None, queue=None)
    if form.get("page") == "queues":
        return lambda told: audit.back(request, told, "queues", asked, queue=None)
    return lambda told: audit.back(request, told, "queue")


NAV = NavLink("Queues", "queues")
ROUTES = [
    Page(VIEW, "/", overview, name="overview"),
    Page(VIEW, "/{server:name}/queues", queues, name="queues"),
    Page(VIEW, "/live", follow, name="live"),
    Page(VIEW, "/{server:name}/live", follow, name="queues-live"),
]
