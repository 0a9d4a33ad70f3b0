"""The overview: a live page of the queues of all servers, or of one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.web import audit, render, sse
from delayq.web.filters import quoted
from delayq.web.live_part import LivePart
from delayq.web.poller import ServerPoller, ServerSnapshot, watch_of
from delayq.web.queue_list import LEAST_PAGE, PAGE, SORTS, QueueListView
from delayq.web.render import NavLink
from delayq.web.request_context import visit
from delayq.web.routes import VIEW, Page

MOST_UNFILTERED = 12
"""With more queues than this, the page has a filter by name."""

OTHERS_SECONDS = 0.5
"""How long a page waits for other servers once one has answered."""


async def overview(request: Request) -> Response:
    """Show the first queues of each server."""
    watches: dict[str, ServerPoller] = request.app.state.watches
    return await _page(request, watches, max(PAGE // len(watches), LEAST_PAGE))


async def queues(request: Request) -> Response:
    """Show a page of one server's queues."""
    watch = watch_of(request)
    return await _page(request, {watch.server.name: watch}, PAGE)


async def follow(request: Request) -> Response | sse.EventStream:
    """Stream the first queues of each server, or a page of one server's queues, whenever they change."""
    watches = [watch_of(request)] if "server" in request.path_params else request.app.state.watches.values()
    view = QueueListView.of(request.query_params)
    return sse.stream(request, *(_parts(request, watch, view) for watch in watches))


async def _page(request: Request, watches: Mapping[str, ServerPoller], rows: int) -> Response:
    view = QueueListView.of(request.query_params, rows)
    snapshots = await _snapshots(watches, view)
    status = 503 if all(snapshot.error for snapshot in snapshots.values()) else 200
    has_filter = not view.is_of_all or any(snapshot.total > MOST_UNFILTERED for snapshot in snapshots.values())
    of_one = {name: request.path_params[name] for name in ("server",) if name in request.path_params}
    stream = render.url(request, "queues-live" if of_one else "live", **of_one)
    asked = render.query(start=view.start, rows=view.rows, **view.fields())
    known = {
        "snapshots": snapshots,
        "view": view,
        "has_filter": has_filter,
        "page": "queues" if of_one else "overview",
        "sorts": SORTS,
        "stream": f"{stream}?{asked}",
    }
    return render.page(request, "overview.html", status, **known)


async def _snapshots(watches: Mapping[str, ServerPoller], view: QueueListView) -> dict[str, ServerSnapshot]:
    """Look at all servers. Once one has answered, the others have a moment; later answers come in the stream."""
    looks = {name: watch.begin(view) for name, watch in watches.items()}
    waiting = set(looks.values())
    while waiting and not any(look.done() and not look.result().error for look in looks.values()):
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if waiting:
        await asyncio.wait(waiting, timeout=OTHERS_SECONDS)
    return {name: look.result() if look.done() else _unseen(watches[name]) for name, look in looks.items()}


def _unseen(watch: ServerPoller) -> ServerSnapshot:
    return ServerSnapshot(at=time.monotonic(), is_awaited=not watch.error, error=watch.error)


async def _parts(request: Request, watch: ServerPoller, view: QueueListView) -> AsyncGenerator[LivePart, None]:
    async for snapshot in watch.following(view):
        yield _part(request, watch.server.name, snapshot, view)


def _part(request: Request, server: str, snapshot: ServerSnapshot, view: QueueListView) -> LivePart:
    """Return the part; it is rendered once for all browsers with the same prefix and rights."""
    seen_by = request.scope.get("root_path", ""), visit(request).may_act
    if seen_by not in snapshot.parts:
        html = render.render(request, "_queues.html", server=server, snapshot=snapshot, view=view)
        snapshot.parts[seen_by] = LivePart.of(f"queues#{quoted(server)}", html, not snapshot.error)
    return snapshot.parts[seen_by]


def returning(request: Request) -> Callable[[str], RedirectResponse]:
    """Return a function that leads back, with a notice, to the page of the form: the list as it was, or the queue.

    Raises:
        InvalidInput: the form names an invalid list.
    """
    form = visit(request).form
    view = QueueListView.of(dict(parse_qsl(form.get("view", ""))))
    asked = render.query(start=view.start, **view.fields())
    if form.get("page") == "overview":
        return lambda notice: audit.back(request, notice, "overview", asked, server=None, queue=None)
    if form.get("page") == "queues":
        return lambda notice: audit.back(request, notice, "queues", asked, queue=None)
    return lambda notice: audit.back(request, notice, "queue")


NAV = NavLink("Queues", "queues")
ROUTES = [
    Page(VIEW, "/", overview, name="overview"),
    Page(VIEW, "/{server:name}/queues", queues, name="queues"),
    Page(VIEW, "/live", follow, name="live"),
    Page(VIEW, "/{server:name}/live", follow, name="queues-live"),
]
