"""Deleting selected records of a topic, or trimming it by length or age; a confirmation says how many records go."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.errors import InvalidInput
from delayq.model.positions import Place
from delayq.model.record import GroupInfo, Record, TrimPlan, lag_text
from delayq.model.show import plural
from delayq.model.units import from_ms, timestamp_ms
from delayq.operations.topics import read, trim
from delayq.web import audit, forms, path_params, render
from delayq.web.background_tasks import BackgroundTasks, word_of
from delayq.web.error_pages import back_on
from delayq.web.forms import InvalidField, field, past_time
from delayq.web.pages import topic as topic_page
from delayq.web.record_keys import key_of, place_of
from delayq.web.request_context import visit
from delayq.web.request_tasks import soon
from delayq.web.routes import ACT, Page
from delayq.web.trims import MOST_IDS, kept, start_trim


@back_on(topic_page.topic)
async def confirm_delete(request: Request) -> Response:
    """Show the records that would be deleted."""
    topic, places = await path_params.topic_of(request), _ticked(request)
    return render.page(
        request,
        "confirm.html",
        title=f"Delete {plural(len(places), 'record')}",
        subject=f"of topic {topic.name}",
        sentences=["They are deleted for good, for all groups, acked or not."],
        ids=[each.id for each in places],
        fields=[*(("ids", key_of(each)) for each in places), ("once", secrets.token_urlsafe(12))],
        action=render.url(request, "delete_records", **request.path_params),
        check=None,
        verb=f"Delete {plural(len(places), 'record')}",
        is_danger=True,
        back=render.url(request, "topic", **request.path_params),
    )


@back_on(confirm_delete)
async def delete(request: Request) -> Response:
    """Delete the selected records."""
    topic, places = await path_params.topic_of(request), _ticked(request)
    tasks: BackgroundTasks = request.app.state.tasks
    notice = "Already done."
    with tasks.once(word_of(visit(request).form)) as is_new:
        if is_new:
            ids = [*map(key_of, places)]
            async with audit.audited(request, "delete records", topic=topic.name, ids=ids) as line:
                done = await topic.delete([Record(topic.name, each.id, (), 0, each.shard) for each in places])
                line["told"] = notice = _deleted(done, len(places))
    return audit.back(request, notice, "topic")


@back_on(topic_page.topic)
async def confirm_trim(request: Request) -> Response:
    """Show how many records a trim would delete, and which groups may still need some of them."""
    topic, form = await path_params.topic_of(request), visit(request).form
    plan = _plan(form, await topic.execute(read.server_time))
    count, at_least = await topic.execute(trim.foresee, plan)
    if not count:
        raise InvalidField("keep", f"no record would be deleted: topic {topic.name} keeps {kept(plan)}")
    behind = [each for each in await topic.groups(quick=True) if each.lag or each.unacked]
    drops = f"Deletes {'at least ' * at_least}{plural(count, 'record')}, acked or not."
    return render.page(
        request,
        "confirm.html",
        title=f"Trim {topic.name}",
        subject=f"to {kept(plan)}",
        sentences=[drops, *map(_needs, behind[:MOST_NAMED])],
        ids=[],
        fields=[*_fields(plan), ("once", secrets.token_urlsafe(12))],
        action=render.url(request, "trim", **request.path_params),
        check=("topic", topic.name),
        verb=f"Delete {'at least ' * at_least}{plural(count, 'record')}",
        is_danger=True,
        back=render.url(request, "topic", **request.path_params),
    )


MOST_NAMED = 20


@back_on(confirm_trim)
async def run_trim(request: Request) -> Response:
    """Start a task that deletes the oldest records; a form that is sent twice leads to the first task."""
    topic, form = await path_params.topic_of(request), visit(request).form
    tasks: BackgroundTasks = request.app.state.tasks
    once, plan = word_of(form), _plan(form, await topic.execute(read.server_time))
    forms.check_name(form, "topic", topic.name)
    task = tasks.asked(once)
    if task is None:  # no await between here and its start: a double click sends two requests at once
        task = start_trim(request, topic, plan, once)
        await soon(task)
    return RedirectResponse(render.url(request, "task", server=task.server, task=task.id), 303)


def _ticked(request: Request) -> list[Place]:
    """Return the selected records; raises InvalidInput."""
    places = [*dict.fromkeys(map(place_of, visit(request).form.getlist("ids")))]
    if not places or len(places) > MOST_IDS:
        many = f"{len(places)} records are selected: select at most {MOST_IDS}"
        raise InvalidField("ids", many if places else "no record is selected: select at least one")
    return places


def _plan(form: Mapping[str, str], now: dt.datetime) -> TrimPlan:
    """Read which records to keep from a form; raises InvalidInput."""
    how, text = form.get("how", ""), form.get("keep", "").strip()
    with field("keep"):
        if how == "length":
            if not (text.isascii() and text.isdecimal() and len(text) < 16):
                raise InvalidInput(f"{text!r} is not a number of records, 0 or more")
            return TrimPlan(length=int(text))
        if how == "age":
            return TrimPlan(since_ms=timestamp_ms(past_time(text, now)))
    raise InvalidInput(f"unknown way to trim {how!r}; expected one of length, age")


def _fields(plan: TrimPlan) -> list[tuple[str, str]]:
    if plan.length is not None:
        return [("how", "length"), ("keep", str(plan.length))]
    return [("how", "age"), ("keep", from_ms(plan.since_ms or 0).isoformat())]


def _needs(group: GroupInfo) -> str:
    lag = lag_text([group])
    return f"Group {group.name} has not received {lag} of the records yet, and has {group.unacked:,} unacked."


def _deleted(done: int, of: int) -> str:
    return (
        f"Deleted {plural(of, 'record')}."
        if done == of
        else f"Deleted {done:,} of {of:,} records; the others no longer exist."
    )


_TOPIC = "/{server:name}/topics/{topic:name}"
ROUTES = [
    Page(ACT, f"{_TOPIC}/delete/confirm", confirm_delete, name="confirm_delete_records"),
    Page(ACT, f"{_TOPIC}/delete", delete, name="delete_records"),
    Page(ACT, f"{_TOPIC}/trim/confirm", confirm_trim, name="confirm_trim"),
    Page(ACT, f"{_TOPIC}/trim", run_trim, name="trim"),
]
