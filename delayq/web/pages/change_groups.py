"""Creating, moving and destroying groups of a topic; the last two after a confirmation."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from delayq.errors import InvalidInput
from delayq.model.positions import Position, beginning
from delayq.model.show import plural
from delayq.model.validation import check_group_name
from delayq.operations.topics import group_admin, read
from delayq.web import audit, forms, path_params, render
from delayq.web.background_tasks import BackgroundTasks, word_of
from delayq.web.error_pages import back_on
from delayq.web.forms import field, past_time
from delayq.web.groups import group_info, group_of, known, missing
from delayq.web.pages import group as group_page
from delayq.web.pages import topic as topic_page
from delayq.web.request_context import visit
from delayq.web.routes import ACT, Page


class Beginning(NamedTuple):
    """Where a group starts, as entered in a form.

    Attributes:
        where: "end", "start", "id" or "time".
        text: the id, or the time.
        position: the library's form of it.
    """

    where: str
    text: str
    position: Position

    @classmethod
    def of(cls, form: Mapping[str, str], now: dt.datetime) -> Beginning:
        """Read a form; raises InvalidInput.

        Args:
            now: the server's clock; a length of time is subtracted from it.
        """
        where, text = form.get("where", ""), form.get("position", "").strip()
        if where in ENDS:
            return cls(where, "", ENDS[where])
        with field("position"):
            if where == "id":
                beginning(text, "position")
                return cls(where, text, text)
            if where == "time":
                at = past_time(text, now)
                return cls(where, at.isoformat(), at)
        raise InvalidInput(f"unknown position {where!r}; expected one of end, start, id, time")

    def words(self) -> str:
        """Say it."""
        if isinstance(self.position, dt.datetime):
            return f"records published since {self.position.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
        words = {"end": "records published from now on", "start": "the first record"}
        return words.get(self.where, f"the record after {self.text}")


ENDS = {"end": "$", "start": "0"}


@back_on(topic_page.topic)
async def make(request: Request) -> Response:
    """Create a group; an existing group keeps its position."""
    topic, form = await path_params.topic_of(request), visit(request).form
    with field("group"):
        name = check_group_name(form.get("group", "").strip())
    at = Beginning.of(form, await topic.execute(read.server_time))
    async with audit.audited(request, "make group", topic=topic.name, group=name, position=str(at.position)) as line:
        made = await topic.group(name, at.position)
        notice = (
            f"Created group {name}. It starts from {at.words()}."
            if made.is_new
            else f"Group {name} already exists and keeps its position."
        )
        line["told"] = notice
    return audit.back(request, notice, "group", group=name)


@back_on(group_page.group)
async def confirm_move(request: Request) -> Response:
    """Show how many records a move would deliver again or skip."""
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    at = Beginning.of(visit(request).form, await topic.execute(read.server_time))
    with known(await group_of(request, topic)):
        move = await topic.execute(group_admin.foresee_move, name, at.position)
    return render.page(
        request,
        "confirm.html",
        title=f"Move {name}",
        subject=f"group of topic {topic.name}",
        sentences=[f"It continues from {at.words()}.", *_effects(move), "Unacked records stay with their consumers."],
        ids=[],
        fields=[("where", at.where), ("position", at.text), ("once", secrets.token_urlsafe(12))],
        action=render.url(request, "move_group", **request.path_params),
        check=None,
        verb="Move the group",
        is_danger=False,
        back=render.url(request, "group", **request.path_params),
    )


@back_on(confirm_move)
async def move(request: Request) -> Response:
    """Move a group to another position."""
    topic, form = await path_params.topic_of(request), visit(request).form
    group = await group_of(request, topic)
    at = Beginning.of(form, await topic.execute(read.server_time))
    tasks: BackgroundTasks = request.app.state.tasks
    notice = "Already done."
    with tasks.once(word_of(form)) as is_new:
        if is_new:
            about = {"topic": topic.name, "group": group.name, "position": str(at.position)}
            async with audit.audited(request, "move group", **about):
                await group.set_position(at.position)
            notice = f"The group continues from {at.words()}."
    return audit.back(request, notice, "group")


@back_on(group_page.group)
async def confirm_destroy(request: Request) -> Response:
    """Show what would be lost with a group."""
    group = await group_of(request)
    info = await group_info(group)
    unacked, dead = plural(info.unacked, "unacked record"), plural(info.dead, "dead letter")
    return render.page(
        request,
        "confirm.html",
        title=f"Destroy {group.name}",
        subject=f"group of topic {group.topic}",
        sentences=[
            f"Deletes its position, {unacked} and {dead} for good.",
            "The topic keeps its records. Running consumers of the group fail.",
        ],
        ids=[],
        fields=[("once", secrets.token_urlsafe(12))],
        action=render.url(request, "destroy_group", **request.path_params),
        check=("group", group.name),
        verb="Destroy the group",
        is_danger=True,
        back=render.url(request, "group", **request.path_params),
    )


@back_on(confirm_destroy)
async def destroy(request: Request) -> Response:
    """Destroy a group."""
    group, form = await group_of(request), visit(request).form
    forms.check_name(form, "group", group.name)
    tasks: BackgroundTasks = request.app.state.tasks
    notice = "Already done."
    with tasks.once(word_of(form)) as is_new:
        if is_new:
            async with audit.audited(request, "destroy group", topic=group.topic, group=group.name):
                if not await group.destroy():
                    raise missing(group.topic, group.name)
            notice = f"Destroyed group {group.name}."
    return audit.back(request, notice, "topic", group=None)


def _effects(move: group_admin.Move) -> list[str]:
    least = "at least " if move.at_least else ""
    effects = []
    if move.again:
        effects.append(f"It receives {least}{plural(move.again, 'record')} again, acked or not.")
    if move.skipped:
        effects.append(f"It skips {least}{plural(move.skipped, 'record')} that it has not received yet.")
    return effects or ["It is already there: it neither skips records nor receives any again."]


_TOPIC = "/{server:name}/topics/{topic:name}"
_GROUP = f"{_TOPIC}/groups/{{group:name}}"
ROUTES = [
    Page(ACT, f"{_TOPIC}/groups", make, name="make_group"),
    Page(ACT, f"{_GROUP}/move/confirm", confirm_move, name="confirm_move_group"),
    Page(ACT, f"{_GROUP}/move", move, name="move_group"),
    Page(ACT, f"{_GROUP}/destroy/confirm", confirm_destroy, name="confirm_destroy_group"),
    Page(ACT, f"{_GROUP}/destroy", destroy, name="destroy_group"),
]
