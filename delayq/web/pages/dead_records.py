"""The dead letters of a group: a list, a page for each, and tasks that requeue or delete them after a confirmation."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.aio.topic_group import Group
from delayq.errors import InvalidInput
from delayq.model.positions import Place
from delayq.model.show import plural
from delayq.web import forms, path_params, render
from delayq.web.background_tasks import BackgroundTasks, word_of
from delayq.web.dead_record_actions import WARNINGS, DeadRecordsRequest, start
from delayq.web.error_pages import back_on
from delayq.web.groups import group_info, group_of
from delayq.web.payloads import payload_of_record, preview_of_record
from delayq.web.record_keys import key_of, place_of
from delayq.web.redaction import in_turns
from delayq.web.request_context import visit
from delayq.web.request_tasks import soon
from delayq.web.routes import ACT, VIEW, Page

PAGE = 50
MOST_NAMED = 10  # as in confirm.html


async def dead_records(request: Request) -> Response:
    """Show a page of a group's dead letters, the longest dead first."""
    group = await group_of(request)
    asked, redaction = request.query_params.get("after", ""), render.redaction(request)
    info = await group_info(group)
    page = await group.dead_page(place_of(asked) if asked else None, PAGE)
    return render.page(
        request,
        "dead_records.html",
        topic=group.topic,
        group=group.name,
        total=info.dead,
        is_first=not asked,
        letters=await in_turns(
            lambda each: (key_of(each.place), redaction.letter(each), preview_of_record(each.record, redaction)),
            page.letters,
        ),
        after=None if page.after is None else key_of(page.after),
        acts=WARNINGS,
    )


async def dead_record(request: Request) -> Response:
    """Show one dead letter."""
    group = await group_of(request)
    key, redaction = request.path_params["letter"], render.redaction(request)
    letter = await group.get_dead(place_of(key))
    if letter is None:
        raise HTTPException(404, f"Group {group.name} has no dead letter {key}: it may have been requeued or deleted.")
    payload = payload_of_record(letter.record, redaction)
    return render.page(
        request,
        "dead_record.html",
        topic=group.topic,
        group=group.name,
        key=key,
        letter=redaction.letter(letter),
        headers={} if payload["size"] is None else redaction.headers(letter.record.headers),
        payload=payload,
        acts=WARNINGS,
    )


@back_on(dead_records)
async def confirm(request: Request) -> Response:
    """Show what the action would do, and to how many dead letters."""
    topic = await path_params.topic_of(request)
    group = await group_of(request, topic)
    asked = DeadRecordsRequest.of(visit(request).form)
    info = await group_info(group)
    if not (asked.places or info.dead):
        raise InvalidInput(f"group {group.name} has no dead letters")
    is_all, act = not asked.places, asked.act
    count = info.dead if is_all else len(asked.places)
    selection = f"{plural(count, 'dead letter')}. Records that die later stay." if is_all else f"{count:,} selected."
    until = (await DeadRecordsRequest.of_all(topic, group.name, act)).until_ms if is_all else 0
    return render.page(
        request,
        "confirm.html",
        title=asked.title(),
        subject=f"of group {group.name} of topic {topic.name}",
        sentences=[selection, WARNINGS[act]],
        ids=await _record_ids(group, asked.places),
        fields=[("act", act), *asked.which(), ("until", str(until)), ("once", secrets.token_urlsafe(12))],
        action=render.url(request, "run_dead_records", **request.path_params),
        check=("group", group.name) if is_all and act == "delete" else None,
        verb=f"{act.capitalize()} {plural(count, 'dead letter')}",
        is_danger=act == "delete",
        back=render.url(request, "dead_records", **request.path_params),
    )


async def _record_ids(group: Group, places: Sequence[Place]) -> list[str]:
    """Return the ids of records as the list shows them: as many as a confirmation names."""
    letters = [await group.get_dead(each) for each in places[:MOST_NAMED]]
    named = [each.record.id for each in letters if each]
    return named + [key_of(each) for each in places[len(named) :]]


@back_on(confirm)
async def run(request: Request) -> Response:
    """Start a task for the action; a form that is sent twice leads to the first task."""
    topic, form = await path_params.topic_of(request), visit(request).form
    group = await group_of(request, topic)
    tasks: BackgroundTasks = request.app.state.tasks
    asked, once = DeadRecordsRequest.of(form), word_of(form)
    if not (asked.places or asked.until_ms):
        raise InvalidInput("the form lacks the time of its confirmation: confirm it again")
    if asked.act == "delete" and not asked.places:
        forms.check_name(form, "group", group.name)
    total = (await group_info(group)).dead
    task = tasks.asked(once)
    if task is None:  # no await between here and its start: a double click sends two requests at once
        task = start(request, topic, asked, total, once)
        await soon(task)
    return RedirectResponse(render.url(request, "task", server=task.server, task=task.id), 303)


_GROUP = "/{server:name}/topics/{topic:name}/groups/{group:name}/dead"
ROUTES = [
    Page(VIEW, _GROUP, dead_records, name="dead_records"),
    Page(ACT, f"{_GROUP}/confirm", confirm, name="confirm_dead_records"),
    Page(ACT, f"{_GROUP}/run", run, name="run_dead_records"),
    Page(VIEW, f"{_GROUP}/letters/{{letter:name}}", dead_record, name="dead_record"),
]
