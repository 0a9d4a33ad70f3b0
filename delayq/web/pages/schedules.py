"""Schedules: when they fire next, what became of the last time, and holding them."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.event import Event, read
from delayq.model.schedule import Schedule
from delayq.model.units import from_ms, timestamp_ms
from delayq.web import audit, path_params, render, tab_counts
from delayq.web.background_tasks import BackgroundTasks, word_of
from delayq.web.error_pages import back_on
from delayq.web.render import NavLink
from delayq.web.request_context import visit

NEXT = 3
MOST_LISTED = 200
MOST_LOOKED_AT = 2000
"""Entries of the ledger, the latest ones, in which the last outcomes are looked for."""

_OCCURRENCE = re.compile(r"(?P<name>.*)@(\d+(~\d+)?|run-\w+)", re.DOTALL)


class ScheduleRow(NamedTuple):
    """A schedule, as its row tells it.

    Attributes:
        last: what the ledger tells last of an earlier occurrence; None when it tells nothing.
    """

    schedule: Schedule
    next: list[dt.datetime]
    last: Event | None


async def schedules(request: Request) -> Response:
    """List the schedules of a queue."""
    queue = await path_params.queue_of(request)
    found = await queue.schedules.list()
    has_ledger = (await queue.configuration()).events is not None
    last = await last_events(queue) if has_ledger and found else {}
    stats, counts = await tab_counts.count(queue)
    return render.page(
        request,
        "schedules.html",
        rows=[ScheduleRow(each, next_times(each), last.get(each.name)) for each in found[:MOST_LISTED]],
        total=len(found),
        has_ledger=has_ledger,
        now=stats.at,
        counts=counts | {"schedules": len(found)},
        once=secrets.token_urlsafe(12),
    )


@back_on(schedules)
async def act(request: Request) -> Response:
    """Pause or resume a schedule, or run it out of turn; a form that is sent twice runs it once."""
    queue, name = await path_params.queue_of(request), request.path_params["schedule"]
    form = visit(request).form
    verb = form.get("act", "")
    if verb not in _TOLD:
        raise InvalidInput(f"action {verb!r} is none of {', '.join(_TOLD)}")
    tasks: BackgroundTasks = request.app.state.tasks
    told = "That was done already."
    with tasks.once(f"{word_of(form)} {verb} {name}") as is_new:
        if is_new:
            async with audit.audited(request, f"schedule {verb}", queue=queue.name, schedule=name):
                told = await _done(queue, verb, name)
    return audit.back(request, told, "schedules", schedule=None)


async def _done(queue: Queue, verb: str, name: str) -> str:
    """Do it, and tell what was done."""
    told = _TOLD[verb].format(name=name)
    if verb == "run":
        return f"{told} as message {(await queue.schedules.run_now(name)).id}."
    if not await (queue.schedules.pause if verb == "pause" else queue.schedules.resume)(name):
        raise HTTPException(404, f"There is no schedule {name} in queue {queue.name} any more.")
    return told


async def last_events(queue: Queue) -> dict[str, Event]:
    """Return what the ledger tells last of each schedule: of an occurrence that was handed out."""
    found: dict[str, Event] = {}
    for record in await queue.events.range(count=MOST_LOOKED_AT, reverse=True):
        event = read(record.id, record.fields)
        match = None if event is None or event.event in _EARLY else _OCCURRENCE.fullmatch(event.id)
        if event is not None and match:
            found.setdefault(match["name"], event)
    return found


def next_times(schedule: Schedule) -> list[dt.datetime]:
    """Return when a schedule fires next, the occurrence on its way first."""
    if schedule.next_at is None:
        return []
    times, after = [schedule.next_at], schedule.slots.after
    while len(times) < NEXT and (following := after(timestamp_ms(times[-1]))) is not None:
        times.append(from_ms(following))
    return times


_EARLY = {"sent", "promoted", "rescheduled", "replaced", "purged", "cancelled"}
_TOLD: dict[str, str] = {
    "pause": "{name} is paused: it fires only when it is run by hand.",
    "resume": "{name} goes on with its next slot.",
    "run": "{name} was sent out of turn",
}

TAB = NavLink("Schedules", "schedules")
ROUTES: list[Any] = [
    Route("/{server:name}/queues/{queue:name}/schedules", schedules, name="schedules"),
    Route("/{server:name}/queues/{queue:name}/schedules/{schedule:name}", act, name="schedule", methods=["POST"]),
]
