"""Changing topics, their records and groups: a confirmation says what a change would do, and then it is made."""

from __future__ import annotations

import secrets
from itertools import chain

from starlette.requests import Request
from starlette.responses import Response

from delayq.model.actions import GROUP_ACTIONS
from delayq.model.validation import check_group_name
from delayq.operations.topics import read
from delayq.web import audit, path_params, render
from delayq.web.changes import TOPIC, Change
from delayq.web.error_pages import Endpoint, back_on
from delayq.web.forms import field
from delayq.web.group_changes import BUTTONS, Beginning, Claim, DeadLetters, Move
from delayq.web.pages import dead_records, group, topic
from delayq.web.record_changes import DeleteRecords, Trim
from delayq.web.request_context import visit
from delayq.web.routes import ACT, Page

_PAGES: dict[str, Endpoint] = {"topic": topic.topic, "group": group.group, "dead_records": dead_records.dead_records}


@back_on(topic.topic)
async def make_group(request: Request) -> Response:
    """Create a group; an existing group keeps its position."""
    found, form, action = await path_params.topic_of(request), visit(request).form, GROUP_ACTIONS["make"]
    with field("group"):
        name = check_group_name(form.get("group", "").strip())
    at = Beginning.of(form, await found.execute(read.server_time))
    async with audit.audited(request, action.audited, topic=found.name, group=name, position=str(at.position)) as line:
        made = await found.group(name, at.position)
        notice = (
            f"{action.words.became.capitalize()} group {name}. It starts from {at.words()}."
            if made.is_new
            else f"Group {name} already exists and keeps its position."
        )
        line["told"] = notice
    return audit.back(request, notice, "group", group=name)


def _confirm(kind: type[Change], run: str) -> Endpoint:
    """Return the page that says what a change would do; its button leads to the route with the name `run`."""

    @back_on(_PAGES[kind.page])
    async def confirm(request: Request) -> Response:
        change = await kind.of(request)
        return render.page(
            request,
            "confirm.html",
            **(await change.foresee())._asdict(),
            fields=[*change.fields(), ("once", secrets.token_urlsafe(12))],
            action=render.url(request, run, **request.path_params),
            check=change.confirmed_by,
            is_danger=change.action.is_danger,
            back=render.url(request, kind.page, **request.path_params),
        )

    return confirm


def _run(kind: type[Change], form: Endpoint) -> Endpoint:
    """Return the endpoint that makes a change; `form` shows a refused form again."""

    @back_on(form)
    async def run(request: Request) -> Response:
        change = await kind.of(request)
        change.check(visit(request).form)
        return await change.run(request)

    return run


def _routes(kind: type[Change]) -> list[Page]:
    """Return the routes of a change and of its confirmation."""
    path, name = f"{kind.path}/{kind.action.name}", kind.action.audited.replace(" ", "_")
    confirm = _confirm(kind, name)
    asked = Page(ACT, f"{path}/confirm", confirm, name=f"confirm_{name}")
    return [asked, Page(ACT, path, _run(kind, confirm), name=name)]


_CONFIRMED: tuple[type[Change], ...] = (DeleteRecords, Trim, Move, *BUTTONS)
_confirm_dead = _confirm(DeadLetters, "run_dead_records")

ROUTES = [
    Page(ACT, f"{TOPIC}/groups", make_group, name="make_group"),
    Page(ACT, f"{Claim.path}/claim", _run(Claim, group.group), name="claim"),
    *chain.from_iterable(map(_routes, _CONFIRMED)),
    Page(ACT, f"{DeadLetters.path}/confirm", _confirm_dead, name="confirm_dead_records"),
    Page(ACT, f"{DeadLetters.path}/run", _run(DeadLetters, _confirm_dead), name="run_dead_records"),
]
