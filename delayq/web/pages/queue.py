"""A queue: its counts, charts and limits; and pausing it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.units import MAX_PAUSE_MS, milliseconds, parse_duration
from delayq.operations.limit_use import MOST_KEYS, limit_use
from delayq.web import audit, path_params, render, sse, tab_counts
from delayq.web.error_pages import back_on
from delayq.web.forms import field
from delayq.web.live_part import LivePart
from delayq.web.pages import overview, queue_charts
from delayq.web.poller import watch_of
from delayq.web.queue_list import SingleQueue
from delayq.web.redaction import REDACTED
from delayq.web.render import NavLink
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page
from delayq.web.snapshot import unreadable

MOST_LISTED = 10


async def queue(request: Request) -> Response:
    """Show a queue."""
    found = await path_params.queue_of(request)
    seen, drawn, used, many = await asyncio.gather(
        watch_of(request).look_at(found.name),
        queue_charts.drawn(request, found),
        _used(request, found),
        tab_counts.schedules(found),
    )
    counts = {} if seen.error else tab_counts.known(seen.stats, seen.alive, many)
    return render.page(request, "queue.html", seen=seen, counts=counts, **drawn, **used)


async def follow(request: Request) -> Response | sse.EventStream:
    """Stream the counts of the queue whenever they change."""
    found = await path_params.queue_of(request)
    return sse.stream(request, _parts(request, found.name))


async def limits(request: Request) -> Response:
    """Return the card of the limits: how much of each is in use, and how many messages it holds back."""
    used = await _used(request, await path_params.queue_of(request))
    return HTMLResponse(render.render(request, "_limits.html", **used))


async def _used(request: Request, queue: Queue) -> dict[str, Any]:
    """Return the variables of the limits' template; redaction hides all keys, since they may hold hidden values."""
    use, is_redacted = await queue.execute(limit_use), bool(render.redaction(request))
    if use is not None and use.keys and is_redacted:
        use = use._replace(keys=tuple(each._replace(key=REDACTED) for each in use.keys))
    return {"use": use, "most_listed": MOST_LISTED, "most_keys": MOST_KEYS}


@back_on(queue)
async def pause(request: Request) -> Response:
    """Pause a queue, for the time in the form or until it is resumed."""
    found, length = await path_params.queue_of(request), visit(request).form.get("for", "").strip()
    back = overview.returning(request)
    with field("for"):
        seconds = _seconds(length) if length else None
    async with audit.audited(request, "pause", queue=found.name, length=length or None):
        await found.pause(seconds)
    watch_of(request).outdate(found.name)
    until = f" for {length}" if length else ""
    return back(f"{found.name} is paused{until}: running messages finish, and no new ones start.")


def _seconds(length: str) -> float:
    seconds = parse_duration(length)
    if not 1 <= milliseconds(seconds) <= MAX_PAUSE_MS:
        raise InvalidInput(f"{length!r} is not between 1ms and 366d: leave it empty to pause until you resume")
    return seconds


@back_on(queue)
async def resume(request: Request) -> Response:
    """Resume a queue."""
    found, back = await path_params.queue_of(request), overview.returning(request)
    async with audit.audited(request, "resume", queue=found.name):
        await found.resume()
    watch_of(request).outdate(found.name)
    return back(f"{found.name} is resumed.")


async def _parts(request: Request, name: str) -> AsyncGenerator[LivePart, None]:
    async for snapshot in watch_of(request).following(SingleQueue(name)):
        for seen in snapshot.queues or [unreadable(name, snapshot.error)]:
            now = render.render(request, "_queue.html", seen=seen)
            counts = {} if seen.error else tab_counts.known(seen.stats, seen.alive)
            yield LivePart.of("now", now + render.render(request, "_counts.html", counts=counts), not seen.error)


TAB = NavLink("Now", "queue")
ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}", queue, name="queue"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/live", follow, name="queue-live"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/limits", limits, name="limits"),
    Page(ACT, "/{server:name}/queues/{queue:name}/pause", pause, name="pause"),
    Page(ACT, "/{server:name}/queues/{queue:name}/resume", resume, name="resume"),
]
