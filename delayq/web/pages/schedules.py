"""The schedules of a queue, or of all queues of a server: their times and outcomes; pausing, running, removing them."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.web import audit, path_params, render, tab_counts
from delayq.web.background_tasks import BackgroundTasks, word_of
from delayq.web.error_pages import back_on
from delayq.web.queue_walk import walk
from delayq.web.render import NavLink
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page
from delayq.web.schedule_rows import ScheduleRow, ScheduleRows, late_names, next_times, schedule_rows

TIMES = 3
MOST_LISTED = 200
MOST_OF_QUEUE = 50  # in the list of a server


async def schedules(request: Request) -> Response:
    """List the schedules of a queue."""
    queue = await path_params.queue_of(request)
    found = await schedule_rows(queue, MOST_LISTED, TIMES, render.redaction(request))
    _, counts = await tab_counts.count(queue)
    return render.page(
        request,
        "schedules.html",
        found=found,
        counts=counts | {"schedules": found.total},
        once=secrets.token_urlsafe(12),
    )


async def server_schedules(request: Request) -> Response:
    """List the schedules of a server, a page of queues at a time."""
    server, after = path_params.server_of(request), request.query_params.get("after", "")
    redaction = render.redaction(request)

    async def look(queue: Queue) -> ScheduleRows:
        return await schedule_rows(queue, MOST_OF_QUEUE, times=1, redaction=redaction)

    page = await walk(server, after, look, lambda each: len(each.rows))
    return render.page(request, "server_schedules.html", page=page)


async def removal(request: Request) -> Response:
    """Ask for confirmation before a schedule is removed."""
    queue, name = await path_params.queue_of(request), request.path_params["schedule"]
    schedule = await queue.schedules.get(name)
    if schedule is None:
        raise HTTPException(404, f"Queue {queue.name} has no schedule {name}.")
    stats, counts = await tab_counts.count(queue)
    late = await late_names(queue, [schedule], stats.at)
    row = ScheduleRow(schedule, next_times(schedule, TIMES), (), bool(late))
    once = secrets.token_urlsafe(12)
    return render.page(request, "schedule_removal.html", row=row, now=stats.at, counts=counts, once=once)


@back_on(schedules)
async def act(request: Request) -> Response:
    """Pause, resume, remove or run a schedule; a form that is sent twice runs it once."""
    queue, name = await path_params.queue_of(request), request.path_params["schedule"]
    form = visit(request).form
    verb = form.get("act", "")
    if verb not in _NOTICES:
        raise InvalidInput(f"unknown action {verb!r}; expected one of {', '.join(_NOTICES)}")
    tasks: BackgroundTasks = request.app.state.tasks
    notice = "Already done."
    with tasks.once(f"{word_of(form)} {verb} {name}") as is_new:
        if is_new:
            async with audit.audited(request, f"schedule {verb}", queue=queue.name, schedule=name):
                notice = await _done(queue, verb, name)
    return audit.back(request, notice, "schedules", schedule=None)


async def _done(queue: Queue, verb: str, name: str) -> str:
    """Act, and return a notice of what was done."""
    notice = _NOTICES[verb].format(name=name)
    if verb == "run":
        return f"{notice}, as message {(await queue.schedules.run_now(name)).id}."
    acts = {"pause": queue.schedules.pause, "resume": queue.schedules.resume, "remove": queue.schedules.remove}
    if not await acts[verb](name):
        raise HTTPException(404, f"Queue {queue.name} no longer has a schedule {name}.")
    return notice


_NOTICES: dict[str, str] = {
    "pause": "{name} is paused: it fires only with Run now.",
    "resume": "{name} is resumed and fires at its next time.",
    "remove": "{name} and its waiting message are removed. A running message finishes.",
    "run": "{name} was sent now",
}

NAV = NavLink("Schedules", "server-schedules")
TAB = NavLink("Schedules", "schedules")
ROUTES: list[Any] = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/schedules", schedules, name="schedules"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/schedules/{schedule:name}/remove", removal, name="schedule-removal"),
    Page(ACT, "/{server:name}/queues/{queue:name}/schedules/{schedule:name}", act, name="schedule"),
    Page(VIEW, "/{server:name}/schedules", server_schedules, name="server-schedules"),
]
