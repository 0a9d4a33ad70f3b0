"""Schedules: when each fires, and with what."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.aio import Queue
from delayq.model import schedule as model
from delayq.model.cron_expression import recurrence, time_zone
from delayq.model.occurrence import Missed
from delayq.model.validation import check_schedule_name
from delayq.web import audit, path_params, render
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.send import Sent, sent
from delayq.web.api.values import (
    Answer,
    Given,
    HeaderValues,
    Moment,
    PayloadKind,
    Retries,
    Seconds,
    Timeout,
    check_moments,
    check_times,
    envelope_of,
    header_values,
    headers_of,
    of,
    payload_fields,
    payload_of,
)
from delayq.web.forms import InvalidField, field
from delayq.web.redaction import Redaction

MOST_LISTED = 200
SCHEDULE = f"{QUEUE}/schedules/{{schedule}}"


class Schedule(Answer):
    """A schedule of a queue.

    Attributes:
        when: its expression, such as "0 9 * * *" or "every 90s".
        missed: what becomes of slots that no consumer was there for: "once" runs one late, "skip" none that is later
            than `grace_seconds`, "all" each of them.
        own: whether it is for the handler that a program has registered under its name.
        start: no slot is earlier; or null.
        end: no slot is later; or null.
        jitter_seconds: each slot is later than the expression says by less than this.
        paused: whether it fires only when it is run by hand.
        finished: whether its last occurrence was handed out.
        next_at: the slot of the occurrence on its way; null when it is paused or finished.
        next_id: the id of that occurrence, or null.
        timeout_seconds: that a run of its handler may take; null where the consumer's timeout counts.
    """

    name: str
    queue: str
    when: str
    timezone: str
    missed: Missed
    grace_seconds: float | None
    own: bool
    start: dt.datetime | None
    end: dt.datetime | None
    jitter_seconds: float
    paused: bool
    finished: bool
    next_at: dt.datetime | None
    next_id: str | None
    max_retries: int
    timeout_seconds: float | None
    headers: HeaderValues
    payload_kind: PayloadKind
    payload_bytes: int | None
    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class Schedules(Answer):
    """A page of schedules, by name.

    Attributes:
        total: how many schedules the queue has.
        next: give it as `after` for the next page; null on the last one.
    """

    schedules: list[Schedule]
    total: int
    next: str | None


class NewSchedule(Given):
    """A schedule to store, or to change.

    Attributes:
        name: 1 to 224 bytes.
        when: five fields, six with the seconds in front, "@daily" and the like, or "every 90s".
        payload: of each occurrence: any JSON; or give `payload_base64`.
        payload_base64: bytes, in base64.
        timezone: a name of the IANA's.
        missed: what becomes of slots that no consumer was there for: "once" runs one late, "skip" none that is later
            than `grace_seconds`, "all" each of them.
        grace_seconds: for "skip"; a minute when it is null.
        start: leave out slots that are earlier.
        end: leave out slots that are later.
        jitter_seconds: delay each slot by a time of its own, less than this.
        max_retries: of each occurrence; the queue's own number when it is null.
        headers: bytes are {"base64": "…"}.
        timeout_seconds: that each run of its handler may take; the consumer's own time when it is null.
    """

    name: str
    when: str
    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    timezone: str = "UTC"
    missed: Missed = "once"
    grace_seconds: Seconds | None = None
    start: Moment | None = None
    end: Moment | None = None
    jitter_seconds: Seconds = 0
    max_retries: Retries | None = None
    headers: HeaderValues = msgspec.field(default_factory=dict)
    timeout_seconds: Timeout | None = None


class Removed(Answer):
    """A schedule that is there no more."""

    name: str


class SchedulesQuery(Given):
    """Which schedules to list.

    Attributes:
        after: `next` of the page before.
        limit: schedules of a page.
    """

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


async def list_schedules(request: Request, query: SchedulesQuery) -> Schedules:
    """List the schedules of a queue, by name, a page at a time."""
    found = await (await path_params.queue_of(request)).schedules.list()
    behind = [each for each in found if each.name > query.after]
    page = behind[: query.limit]
    more = page[-1].name if len(behind) > len(page) else None
    return Schedules(
        schedules=[schedule(each, render.redaction(request)) for each in page], total=len(found), next=more
    )


async def get_schedule(request: Request) -> Schedule:
    """Return a schedule."""
    found = await known(await path_params.queue_of(request), request.path_params["schedule"])
    return schedule(found, render.redaction(request))


async def add_schedule(request: Request, body: NewSchedule) -> Schedule:
    """Store a schedule, or change the one of this name; one that is the same is left as it is."""
    queue = await path_params.queue_of(request)
    payload = payload_of(body.payload, body.payload_base64)
    with field("name"):
        check_schedule_name(body.name)
    with field("timezone"):
        time_zone(body.timezone)
    with field("when"):
        recurrence(body.when, body.timezone)
    check_times(grace_seconds=body.grace_seconds, jitter_seconds=body.jitter_seconds)
    check_moments(start=body.start, end=body.end)
    before = await queue.schedules.get(body.name)
    if before is not None and before.own:
        raise InvalidField("name", f"schedule {body.name} belongs to the code of a program: give another name")
    async with audit.audited(request, "add-schedule", queue=queue.name, schedule=body.name):
        added = await queue.schedules.add(
            body.name,
            body.when,
            None if payload is UNSET else payload,
            timezone=body.timezone,
            missed=body.missed,
            grace=body.grace_seconds,
            start=body.start,
            end=body.end,
            jitter=body.jitter_seconds,
            max_retries=body.max_retries,
            headers=headers_of(body.headers) or None,
            timeout=body.timeout_seconds,
        )
    return schedule(added, render.redaction(request))


async def pause_schedule(request: Request) -> Schedule:
    """Let a schedule rest: it fires only when it is run by hand."""
    queue, name = await _named(request)
    async with audit.audited(request, "schedule pause", queue=queue.name, schedule=name):
        await queue.schedules.pause(name)
    return schedule(await known(queue, name), render.redaction(request))


async def resume_schedule(request: Request) -> Schedule:
    """Let a schedule go on with its next slot."""
    queue, name = await _named(request)
    async with audit.audited(request, "schedule resume", queue=queue.name, schedule=name):
        await queue.schedules.resume(name)
    return schedule(await known(queue, name), render.redaction(request))


async def run_schedule(request: Request) -> Sent:
    """Send an occurrence of a schedule out of turn. Give an Idempotency-Key to make the request safe to repeat."""
    queue, name = await _named(request)
    async with audit.audited(request, "schedule run", queue=queue.name, schedule=name):
        return sent(await queue.schedules.run_now(name))


async def remove_schedule(request: Request) -> Removed:
    """Forget a schedule with its waiting occurrence; one that runs is finished."""
    queue, name = await _named(request)
    async with audit.audited(request, "schedule remove", queue=queue.name, schedule=name):
        await queue.schedules.remove(name)
    return Removed(name=name)


async def _named(request: Request) -> tuple[Queue, str]:
    """Return the queue and the name of the schedule that the path names; raises a 404."""
    queue, name = await path_params.queue_of(request), request.path_params["schedule"]
    await known(queue, name)
    return queue, name


async def known(queue: Queue, name: str) -> model.Schedule:
    """Return a schedule of a queue; raises a 404 when there is none."""
    found = await queue.schedules.get(name)
    if found is None:
        raise HTTPException(404, f"There is no schedule {name} in queue {queue.name}.")
    return found


def schedule(seen: model.Schedule, redaction: Redaction) -> Schedule:
    """Return a schedule as answers have it."""
    return of(
        Schedule,
        seen,
        grace_seconds=seen.grace,
        jitter_seconds=seen.jitter,
        timeout_seconds=seen.timeout,
        headers=header_values(redaction.headers(seen.headers)),
        **payload_fields(envelope_of(seen.payload), redaction),
    )


OPERATIONS = [
    Operation("GET", f"{QUEUE}/schedules", list_schedules),
    Operation("GET", SCHEDULE, get_schedule),
    Operation("POST", f"{QUEUE}/schedules", add_schedule, action="add-schedule"),
    Operation("POST", f"{SCHEDULE}/pause", pause_schedule, action="schedule pause"),
    Operation("POST", f"{SCHEDULE}/resume", resume_schedule, action="schedule resume"),
    Operation("POST", f"{SCHEDULE}/run", run_schedule, action="schedule run"),
    Operation("POST", f"{SCHEDULE}/remove", remove_schedule, action="schedule remove"),
]
