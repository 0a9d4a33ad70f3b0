"""Groups of a topic: made, moved and destroyed; the last two after a confirmation that says what they would do."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.aio import Topic
from delayq.errors import InvalidInput, UnknownGroup
from delayq.model.positions import Position, beginning
from delayq.model.record import GroupInfo
from delayq.model.validation import check_group_name
from delayq.operations.topics import group_admin
from delayq.operations.topics.group_admin import Move
from delayq.operations.topics.read import server_time
from delayq.web import audit, forms, path_params, render
from delayq.web.background_tasks import BackgroundTasks, word_of
from delayq.web.error_pages import back_on
from delayq.web.forms import field, past_time
from delayq.web.pages import group as group_page
from delayq.web.pages import topic as topic_page
from delayq.web.request_context import visit


class Beginning(NamedTuple):
    """Where a group begins, as a form says it.

    Attributes:
        where: "end", "start", "id" or "time".
        text: the id, or the time.
        position: the same for the library.
    """

    where: str
    text: str
    position: Position

    @classmethod
    def of(cls, form: Mapping[str, str], now: dt.datetime) -> Beginning:
        """Read a form; raises InvalidInput.

        Args:
            now: the server's clock, from which a length of time counts back.
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
            return f"what was published at {self.position.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC, or later"
        words = {"end": "what is published from now on", "start": "the first record"}
        return words.get(self.where, f"the record behind {self.text}")


ENDS = {"end": "$", "start": "0"}


@back_on(topic_page.topic)
async def make(request: Request) -> Response:
    """Make a group; one that exists stays where it is."""
    topic, form = await path_params.topic_of(request), visit(request).form
    with field("group"):
        name = check_group_name(form.get("group", "").strip())
    at = Beginning.of(form, await topic.execute(server_time))
    async with audit.audited(request, "make group", topic=topic.name, group=name, position=str(at.position)) as line:
        is_new = await topic.execute(group_admin.make, name, at.position)
        told = (
            f"Group {name} is made: it begins with {at.words()}."
            if is_new
            else f"Group {name} exists: it stays where it is."
        )
        line["told"] = told
    return audit.back(request, told, "group", group=name)


@back_on(group_page.group)
async def confirm_move(request: Request) -> Response:
    """Say how many records a move would hand out again, or skip."""
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    at = Beginning.of(visit(request).form, await topic.execute(server_time))
    try:
        move = await topic.execute(group_admin.foresee_move, name, at.position)
    except UnknownGroup as error:
        raise _missing(topic, name) from error
    return render.page(
        request,
        "confirm.html",
        title=f"Move {name}",
        subject=f"group of topic {topic.name}",
        sentences=[f"It goes on with {at.words()}.", *_effects(move), "What is unacked stays with its consumers."],
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
    """Let a group go on from elsewhere."""
    topic, name, form = await path_params.topic_of(request), request.path_params["group"], visit(request).form
    at = Beginning.of(form, await topic.execute(server_time))
    tasks: BackgroundTasks = request.app.state.tasks
    told = "That was done already."
    with tasks.once(word_of(form)) as is_new:
        if is_new:
            async with audit.audited(request, "move group", topic=topic.name, group=name, position=str(at.position)):
                await topic.execute(group_admin.move, name, at.position)
            told = f"The group goes on with {at.words()}."
    return audit.back(request, told, "group")


@back_on(group_page.group)
async def confirm_destroy(request: Request) -> Response:
    """Say what would be lost with a group."""
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    info = await _info(topic, name)
    return render.page(
        request,
        "confirm.html",
        title=f"Destroy {name}",
        subject=f"group of topic {topic.name}",
        sentences=[
            f"Gone for good: its position, its list of {info.unacked:,} unacked and its {info.dead:,} dead letters.",
            "The topic keeps its records. A consumer of the group that still runs fails.",
        ],
        ids=[],
        fields=[("once", secrets.token_urlsafe(12))],
        action=render.url(request, "destroy_group", **request.path_params),
        check=("group", name),
        verb="Destroy the group",
        is_danger=True,
        back=render.url(request, "group", **request.path_params),
    )


@back_on(confirm_destroy)
async def destroy(request: Request) -> Response:
    """Take a group away."""
    topic, name, form = await path_params.topic_of(request), request.path_params["group"], visit(request).form
    forms.check_name(form, "group", name)
    tasks: BackgroundTasks = request.app.state.tasks
    told = "That was done already."
    with tasks.once(word_of(form)) as is_new:
        if is_new:
            async with audit.audited(request, "destroy group", topic=topic.name, group=name):
                if not await topic.execute(group_admin.destroy, name):
                    raise _missing(topic, name)
            told = f"Group {name} is destroyed."
    return audit.back(request, told, "topic", group=None)


def _effects(move: Move) -> list[str]:
    least = "At least " if move.at_least else ""
    told = []
    if move.again:
        told.append(f"{least}{_records(move.again)} that it was handed already: it is handed them again, acked or not.")
    if move.skipped:
        told.append(f"{least}{_records(move.skipped)} that it was not handed yet: it skips them.")
    return told or ["It is there already: no record is handed out again, and none is skipped."]


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


async def _info(topic: Topic, group: str) -> GroupInfo:
    try:
        return await topic.execute(group_admin.info, group, most_calls=1)
    except UnknownGroup as error:
        raise _missing(topic, group) from error


def _missing(topic: Topic, group: str) -> HTTPException:
    return HTTPException(404, f"Topic {topic.name} has no group {group}.")


_TOPIC = "/{server:name}/topics/{topic:name}"
_GROUP = f"{_TOPIC}/groups/{{group:name}}"
ROUTES = [
    Route(f"{_TOPIC}/groups", make, name="make_group", methods=["POST"]),
    Route(f"{_GROUP}/move/confirm", confirm_move, name="confirm_move_group", methods=["POST"]),
    Route(f"{_GROUP}/move", move, name="move_group", methods=["POST"]),
    Route(f"{_GROUP}/destroy/confirm", confirm_destroy, name="confirm_destroy_group", methods=["POST"]),
    Route(f"{_GROUP}/destroy", destroy, name="destroy_group", methods=["POST"]),
]
