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
from delayq.model.occurrence import Missed
from delayq.web import path_params
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.values import Answer, Given, HeaderValues, PayloadKind, header_values, of, payload_value

MOST_LISTED = 200


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
    return Schedules(schedules=[schedule(each) for each in page], total=len(found), next=more)


async def get_schedule(request: Request) -> Schedule:
    """Return a schedule."""
    return schedule(await known(await path_params.queue_of(request), request.path_params["schedule"]))


async def known(queue: Queue, name: str) -> model.Schedule:
    """Return a schedule of a queue; raises a 404 when there is none."""
    found = await queue.schedules.get(name)
    if found is None:
        raise HTTPException(404, f"There is no schedule {name} in queue {queue.name}.")
    return found


def schedule(seen: model.Schedule) -> Schedule:
    """Return a schedule as answers have it."""
    return of(
        Schedule,
        seen,
        grace_seconds=seen.grace,
        jitter_seconds=seen.jitter,
        timeout_seconds=seen.timeout,
        headers=header_values(seen.headers),
        **payload_value(seen.payload),
    )


OPERATIONS = [
    Operation("GET", f"{QUEUE}/schedules", list_schedules),
    Operation("GET", f"{QUEUE}/schedules/{{schedule}}", get_schedule),
]
