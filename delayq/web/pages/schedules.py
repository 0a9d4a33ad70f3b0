"""The schedules of a queue, or of all queues of a server: their times and outcomes; pausing, running, removing them."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.model.actions import SCHEDULE_ACTIONS
from delayq.web import audit, path_params, render, tab_counts
from delayq.web.background_jobs import word_of
from delayq.web.error_pages import back_on
from delayq.web.forms import check_choice
from delayq.web.queue_walk import walk
from delayq.web.render import NavLink
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page
from delayq.web.schedule_rows import ScheduleRow, ScheduleRows, late_names, next_times, schedule_rows
from delayq.web.schedules import act, schedule_of

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
    queue, schedule = await schedule_of(request)
    stats, counts = await tab_counts.count(queue)
    late = await late_names(queue, [schedule], stats.at)
    row = ScheduleRow(schedule, next_times(schedule, TIMES), (), bool(late))
    once = secrets.token_urlsafe(12)
    return render.page(request, "schedule_removal.html", row=row, now=stats.at, counts=counts, once=once)


@back_on(schedules)
async def run(request: Request) -> Response:
    """Act on a schedule; a form that is sent twice acts once."""
    queue, name = await path_params.queue_of(request), request.path_params["schedule"]
    form = visit(request).form
    asked = form.get("act", "")
    check_choice("action", asked, SCHEDULE_ACTIONS)
    action, jobs = SCHEDULE_ACTIONS[asked], request.app.state.jobs
    notice = "Already done."
    with jobs.once(f"{word_of(form)} {asked} {name}") as is_new:
        if is_new:
            sent = await act(request, queue, action, name)
            notice = f"{name} {action.notice}" + (f", as message {sent.id}." if sent else "")
    return audit.back(request, notice, "schedules", schedule=None)


NAV = NavLink("Schedules", "server-schedules")
TAB = NavLink("Schedules", "schedules")
ROUTES: list[Any] = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/schedules", schedules, name="schedules"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/schedules/{schedule:name}/remove", removal, name="schedule-removal"),
    Page(ACT, "/{server:name}/queues/{queue:name}/schedules/{schedule:name}", run, name="schedule"),
    Page(VIEW, "/{server:name}/schedules", server_schedules, name="server-schedules"),
]
