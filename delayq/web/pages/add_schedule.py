"""A form that adds a schedule; a preview shows it in words and with its next times before it is stored."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.errors import InvalidInput, PayloadNotSerializable, PayloadTooLarge
from delayq.model.cron_expression import MAX_INTERVAL_S, recurrence
from delayq.model.occurrence import Plan, make_plan
from delayq.model.schedule import Schedule
from delayq.model.time_zones import check_zone
from delayq.model.units import from_ms, parse_moment, timestamp_ms
from delayq.model.validation import check_schedule_name
from delayq.operations import schedules
from delayq.web import audit, path_params, render, tab_counts
from delayq.web.background_jobs import BackgroundJobs, word_of
from delayq.web.error_pages import back_on
from delayq.web.forms import InvalidField, check_choice, field
from delayq.web.message_fields import KINDS, delay_of, headers_of, payload_of, retries_of, timeout_of
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page
from delayq.web.schedule_words import words

TIMES = 5

EMPTY = {
    **dict.fromkeys(("name", "when", "grace", "start", "end", "jitter", "headers", "retries", "timeout"), ""),
    "timezone": "UTC",
    "missed": "once",
    "payload": "null",
    "kind": "json",
}
"""The initial fields of the form."""

MISSED = {"once": "run once, late", "skip": "skip times that are too late", "all": "run all missed times, in order"}
"""The choices of `Missed`, in words."""


class Draft(NamedTuple):
    """The content of the form: the arguments of `Schedules.add`, and the plan that they make."""

    name: str
    plan: Plan
    arguments: dict[str, Any]


async def schedule_form(request: Request) -> Response:
    """Show the form."""
    return await _form(request, await path_params.queue_of(request), EMPTY)


@back_on(schedule_form)
async def add(request: Request) -> Response:
    """Show the preview, return to the form, or store the schedule; a form that is sent twice stores it once."""
    queue, form = await path_params.queue_of(request), visit(request).form
    if form.get("act") == "change":
        return await _form(request, queue, {name: form.get(name, empty) for name, empty in EMPTY.items()})
    draft = _draft(form)
    if form.get("act") == "store":
        return await _store(request, queue, draft)
    existing = await _existing(queue, draft)
    await _check(queue, draft)
    stats, counts = await tab_counts.count(queue)
    return render.page(
        request,
        "schedule_preview.html",
        draft=draft,
        words=words(draft.plan.when, draft.plan.timezone),
        times=_times(draft, queue.name, stats.at),
        now=stats.at,
        counts=counts,
        existing=existing,
        existing_words="" if existing is None else words(existing.when, existing.timezone),
        missed=MISSED[draft.plan.missed],
        fields=[(name, form.get(name, empty)) for name, empty in EMPTY.items()],
        once=secrets.token_urlsafe(12),
    )


async def _form(request: Request, queue: Queue, values: Mapping[str, str]) -> Response:
    _, counts = await tab_counts.count(queue)
    return render.page(request, "schedule_form.html", values=values, kinds=KINDS, missed=MISSED, counts=counts)


async def _store(request: Request, queue: Queue, draft: Draft) -> Response:
    form = visit(request).form
    jobs: BackgroundJobs = request.app.state.jobs
    notice = f"{draft.name} is already stored."
    with jobs.once(word_of(form)) as is_new:
        if is_new:
            existing = await _existing(queue, draft)
            if (existing is not None) != (form.get("existed") == "1"):
                is_gone = "was removed" if existing is None else "now exists"
                raise InvalidField("name", f"schedule {draft.name} {is_gone}: check the preview again")
            about = {"schedule": draft.name, "when": draft.plan.when, "timezone": draft.plan.timezone}
            async with audit.audited(request, "add-schedule", queue=queue.name, **about) as line:
                stored = await _stored(queue, draft)
                notice = line["told"] = (
                    f"{draft.name} is {'stored' if existing is None else 'changed'}: {_next(stored)}."
                )
    return audit.back(request, notice, "schedules")


async def _existing(queue: Queue, draft: Draft) -> Schedule | None:
    """Return the schedule with this name; raises InvalidField if only a program may change it."""
    existing = await queue.schedules.get(draft.name)
    if existing is not None and existing.own:
        message = f"a program declares schedule {draft.name} in its code: change it there, or choose another name"
        raise InvalidField("name", message)
    return existing


async def _check(queue: Queue, draft: Draft) -> None:
    """Check everything that the call with this draft would check; raises InvalidField."""
    sent = {name: draft.arguments[name] for name in ("payload", "max_retries", "headers", "timeout")}
    try:
        await queue.execute(schedules.check, draft.name, draft.plan, **sent)
    except (PayloadTooLarge, PayloadNotSerializable) as error:
        raise InvalidField("payload", str(error)) from error
    except InvalidInput as error:  # everything else was checked before
        raise InvalidField("headers", str(error)) from error


async def _stored(queue: Queue, draft: Draft) -> Schedule:
    await _check(queue, draft)
    return await queue.schedules.add(draft.name, draft.plan.when, **draft.arguments)


def _draft(form: Mapping[str, str]) -> Draft:
    """Read the form; raises InvalidField."""
    with field("name"):
        name = check_schedule_name(form.get("name", "").strip())
    timezone, when = form.get("timezone", "").strip() or "UTC", form.get("when", "").strip()
    with field("timezone"):
        check_zone(timezone)
    with field("when"):
        recurrence(when, timezone)
    given: dict[str, Any] = {
        "timezone": timezone,
        "missed": _missed(form),
        "grace": delay_of(form, "grace"),
        "start": _moment(form, "start"),
        "end": _moment(form, "end"),
        "jitter": delay_of(form, "jitter") or 0,
    }
    if given["grace"] is not None and given["missed"] != "skip":
        raise InvalidField("grace", "this applies to “skip” only: leave it empty")
    if given["jitter"] > MAX_INTERVAL_S:
        raise InvalidField("jitter", f"{form['jitter']!r} is more than 366 days: give a shorter time")
    with field("end" if given["end"] else "when"):
        plan = make_plan(when, own=False, **given)
    sent = {"payload": payload_of(form), "headers": headers_of(form)}
    limits = {"max_retries": retries_of(form), "timeout": timeout_of(form)}
    return Draft(name, plan, given | sent | limits)


def _missed(form: Mapping[str, str]) -> str:
    missed = form.get("missed", "once")
    with field("missed"):
        check_choice("choice", missed, MISSED)
    return missed


def _moment(form: Mapping[str, str], name: str) -> dt.datetime | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    with field(name):
        moment = parse_moment(text)
        timestamp_ms(moment, name)  # checks it
    return moment


def _times(draft: Draft, queue: str, now: dt.datetime) -> list[dt.datetime]:
    """Return the next times of the schedule."""
    slots, found, last = draft.plan.slots(queue, draft.name), list[dt.datetime](), timestamp_ms(now)
    while len(found) < TIMES and (following := slots.after(last)) is not None:
        found.append(from_ms(following))
        last = following
    return found


def _next(schedule: Schedule) -> str:
    if schedule.next_at is None:
        return "it is paused" if schedule.paused else "it is finished, since its end has passed"
    return f"it fires next at {schedule.next_at:%Y-%m-%d %H:%M:%S} UTC"


ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/new-schedule", schedule_form, name="schedule-form"),
    Page(ACT, "/{server:name}/queues/{queue:name}/new-schedule", add, name="add-schedule"),
]
