"""The schedules of a queue."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from delayq.model import schedule as model
from delayq.model.actions import SCHEDULE_ACTIONS, ScheduleAction
from delayq.model.cron_expression import recurrence
from delayq.model.delivery import Outgoing
from delayq.model.occurrence import Missed
from delayq.model.task_name import header_of
from delayq.model.time_zones import check_zone
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
    arguments,
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
from delayq.web.redaction import Redaction, in_turns
from delayq.web.routes import ACT, VIEW
from delayq.web.schedules import act, known, schedule_of

MOST_LISTED = 200
SCHEDULE = f"{QUEUE}/schedules/{{schedule}}"


class Schedule(Answer):
    """A schedule of a queue.

    Attributes:
        when: its expression, such as "0 9 * * *" or "every 90s".
        missed: what happens to slots when no consumer ran: "once" runs one of them late, "skip" drops those more than
            `grace_seconds` late, "all" runs each of them.
        own: whether a program declares it in its code, with a handler of the same name.
        start: the earliest slot, or null.
        end: the latest slot, or null.
        jitter_seconds: each slot is delayed at random by less than this.
        paused: whether it is paused; then it fires only on request.
        finished: whether its last occurrence was handed out.
        next_at: the slot of the next occurrence; null if it is paused or finished.
        next_id: the id of that occurrence, or null.
        timeout_seconds: the time limit of each run; null for the consumer's limit.
        task: the task that it runs, or null.
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
    task: str | None
    headers: HeaderValues
    payload_kind: PayloadKind
    payload_bytes: int | None
    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class Schedules(Answer):
    """A page of schedules, by name.

    Attributes:
        total: the number of schedules of the queue.
        next: pass it as `after` to get the next page; null on the last page.
    """

    schedules: list[Schedule]
    total: int
    next: str | None


class NewSchedule(Given):
    """A schedule to store, or to change.

    Attributes:
        name: 1 to 224 bytes.
        when: a cron expression (five fields, or six with seconds first), "@daily" or similar, or "every 90s".
        payload: the payload of each occurrence, any JSON; or give `payload_base64`.
        payload_base64: bytes, in base64.
        timezone: an IANA name.
        missed: what happens to slots when no consumer ran: "once" runs one of them late, "skip" drops those more than
            `grace_seconds` late, "all" runs each of them.
        grace_seconds: for "skip"; null for a minute.
        start: skip earlier slots.
        end: skip later slots.
        jitter_seconds: delay each slot at random by less than this.
        max_retries: retries of each occurrence; null for the queue's number.
        headers: bytes are {"base64": "…"}.
        timeout_seconds: the time limit of each run; null for the consumer's limit.
        task: the task to run; the payload is then an object of its arguments, {} if you leave it out.
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
    task: str | None = None


class Removed(Answer):
    """A schedule that was removed."""

    name: str


class SchedulesQuery(Given):
    """Which schedules to list.

    Attributes:
        after: `next` of the previous page.
        limit: schedules per page.
    """

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


async def list_schedules(request: Request, query: SchedulesQuery) -> Schedules:
    """List the schedules of a queue, by name, a page at a time."""
    found = await (await path_params.queue_of(request)).schedules.list()
    behind = [each for each in found if each.name > query.after]
    page = behind[: query.limit]
    more = page[-1].name if len(behind) > len(page) else None
    redaction = render.redaction(request)
    return Schedules(
        schedules=await in_turns(lambda each: schedule(each, redaction), page), total=len(found), next=more
    )


async def get_schedule(request: Request) -> Schedule:
    """Return a schedule."""
    _, found = await schedule_of(request)
    return schedule(found, render.redaction(request))


async def add_schedule(request: Request, body: NewSchedule) -> Schedule:
    """Store a schedule, or change the one with this name. An identical schedule stays as it is."""
    queue = await path_params.queue_of(request)
    payload = payload_of(body.payload, body.payload_base64)
    if payload is UNSET:
        payload = None if body.task is None else {}
    with field("name"):
        check_schedule_name(body.name)
    with field("task"):
        header_of(body.task, payload)
    with field("timezone"):
        check_zone(body.timezone)
    with field("when"):
        recurrence(body.when, body.timezone)
    check_times(grace_seconds=body.grace_seconds, jitter_seconds=body.jitter_seconds)
    check_moments(start=body.start, end=body.end)
    before = await queue.schedules.get(body.name)
    if before is not None and before.own:
        raise InvalidField("name", f"a program declares schedule {body.name} in its code: choose another name")
    async with audit.audited(request, "add-schedule", queue=queue.name, schedule=body.name):
        added = await queue.schedules.add(
            message=Outgoing(
                payload,
                headers=headers_of(body.headers) or None,
                max_retries=body.max_retries,
                timeout=body.timeout_seconds,
                task=body.task,
            ),
            **arguments(body, "payload", "payload_base64", "headers", "max_retries", "timeout_seconds", "task"),
        )
    return schedule(added, render.redaction(request))


ANSWERS: dict[str, type[Answer]] = {"run": Sent, "remove": Removed}
"""What the actions on a schedule answer; the others answer with the schedule."""


def _acting(action: ScheduleAction) -> Operation:
    """Return the operation that acts on a schedule."""

    async def run(request: Request) -> Answer:
        queue, found = await schedule_of(request)
        done = await act(request, queue, action, found.name)
        if done is not None:
            return sent(done)
        if action.name == "remove":
            return Removed(name=found.name)
        return schedule(await known(queue, found.name), render.redaction(request))

    run.__annotations__["return"] = ANSWERS.get(action.name, Schedule)
    path, name = f"{SCHEDULE}/{action.name}", f"{action.name}_schedule"
    return Operation(ACT, path, run, name=name, text=action.about, action=action.audited)


def schedule(seen: model.Schedule, redaction: Redaction) -> Schedule:
    """Return a schedule as an answer has it."""
    return of(
        Schedule,
        seen,
        headers=header_values(redaction.headers(seen.headers)),
        **payload_fields(envelope_of(seen.payload), redaction),
    )


OPERATIONS = [
    Operation(VIEW, f"{QUEUE}/schedules", list_schedules),
    Operation(VIEW, SCHEDULE, get_schedule),
    Operation(ACT, f"{QUEUE}/schedules", add_schedule, action="add-schedule"),
    *map(_acting, SCHEDULE_ACTIONS.values()),
]
