"""Groups of topics: their consumers, what they have not acked, and their dead letters."""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.errors import UnknownGroup
from delayq.model.positions import Position, beginning
from delayq.model.validation import check_group_name
from delayq.operations.topics import dead_letters, group_admin, group_read, reclaim
from delayq.web import audit, path_params, render
from delayq.web.api.operation import Operation
from delayq.web.api.tasks import Task, begun
from delayq.web.api.topics import MOST_LISTED, PAGE, TOPIC, Group, Record, record
from delayq.web.api.values import Answer, Given, Moment, Name, Seconds, check_confirmed, check_moments, check_times, of
from delayq.web.forms import InvalidField, field
from delayq.web.pages.dead_records import MOST_IDS, DeadRecordsRequest, group_info, start
from delayq.web.pages.group import MOST_CLAIMED, check_known
from delayq.web.record_keys import key_of, place_of

GROUP = f"{TOPIC}/groups/{{group}}"
DEAD = f"{GROUP}/dead-letters"


class GroupConsumer(Answer):
    """A consumer of a group.

    Attributes:
        unacked: records that it holds.
        idle_seconds: since it was heard of.
    """

    name: str
    unacked: int
    idle_seconds: float


class UnackedRecord(Answer):
    """A record that a group was handed and has not acked.

    Attributes:
        consumer: who was handed it last.
        idle_seconds: since then.
        deliveries: how often the group was handed it.
    """

    id: str
    consumer: str
    idle_seconds: float
    deliveries: int


class GroupDetail(Answer):
    """A group: its consumers by name and the records that it has not acked by id, up to 200 of each."""

    group: Group
    consumers: list[GroupConsumer]
    unacked: list[UnackedRecord]


class DeadRecord(Answer):
    """A dead letter of a group.

    Attributes:
        key: by which requests name it.
        record: as it was in the topic.
        consumer: who was handed it last.
        deliveries: how often the group was handed it.
        errors: what its failed deliveries said, the oldest first, as far as they are kept.
    """

    key: str
    died_at: dt.datetime
    record: Record
    consumer: str
    deliveries: int
    reason: str
    errors: list[str]


class DeadRecords(Answer):
    """Dead letters of a group, the longest dead first.

    Attributes:
        total: how many there are.
        next: give it as `after` for the next page; null on the last one.
    """

    dead_letters: list[DeadRecord]
    total: int
    next: str | None


class Place(Given):
    """From where a group is to read.

    Attributes:
        position: $ for what is published from now on, 0 for the first record, or the id behind which to begin.
        at: records that were published at this moment or later, instead of `position`.
    """

    position: str | UnsetType = UNSET
    at: Moment | None = None

    def found(self) -> Position:
        """Return it as the library has it; raises InvalidInput."""
        if self.at is not None and self.position is not UNSET:
            raise InvalidField("at", "position and at are both given: give one of them")
        check_moments(at=self.at)
        with field("position"):
            found: Position = self.at or ("$" if self.position is UNSET else self.position)
            beginning(found, "position")
        return found


class NewGroup(Place, kw_only=True):
    """A group to make.

    Attributes:
        name: 1 to 256 bytes.
        position: $ for what is published from now on, 0 for the first record, or the id behind which to begin.
        at: records that were published at this moment or later, instead of `position`.
    """

    name: Name


class MadeGroup(Answer):
    """A group.

    Attributes:
        created: false when it was there, and stays where it is.
    """

    name: str
    created: bool


class Destroy(Given):
    """Whether the group is meant.

    Attributes:
        confirm: the name of the group.
    """

    confirm: str


class DestroyedGroup(Answer):
    """A group that is there no more."""

    name: str


class Claim(Given):
    """Who takes over which records.

    Attributes:
        consumer: 1 to 256 bytes.
        idle_seconds: records that were taken so long ago, or longer.
        new: whether the group may not know the consumer yet.
    """

    consumer: Name
    idle_seconds: Seconds
    new: bool = False


class Claimed(Answer):
    """What was taken over, at most 100 records at a time.

    Attributes:
        ids: of the records that the consumer holds now.
        ghosts: records that were trimmed, and have left the list of what is unacked.
    """

    ids: list[str]
    ghosts: int


class Letters(Given):
    """Which dead letters are meant.

    Attributes:
        keys: their keys, 1 to 100.
    """

    keys: Annotated[list[Name], Meta(min_length=1, max_length=MOST_IDS)]


class AllLetters(Given):
    """All dead letters of the group.

    Attributes:
        confirm: the name of the group.
    """

    confirm: str


class DeadQuery(Given):
    """Which dead letters to list.

    Attributes:
        after: `next` of the page before.
        limit: dead letters of a page.
    """

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = PAGE


async def get_group(request: Request) -> GroupDetail:
    """Return a group with its consumers and what they have not acked."""
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    with known_group(topic.name, name):
        info = await topic.execute(group_admin.info, name)
        members = await topic.execute(group_admin.consumers, name)
        unacked = await topic.execute(group_read.unacked, name, None, 0, MOST_LISTED)
    return GroupDetail(
        group=of(Group, info),
        consumers=[of(GroupConsumer, each, idle_seconds=each.idle) for each in members[:MOST_LISTED]],
        unacked=[of(UnackedRecord, each, idle_seconds=each.idle) for each in unacked],
    )


async def list_group_dead_letters(request: Request, query: DeadQuery) -> DeadRecords:
    """List the dead letters of a group, the longest dead first."""
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    with field("after"):
        after = place_of(query.after) if query.after else None
    total = (await group_info(topic, name)).dead
    redaction = render.redaction(request)
    page = await topic.execute(dead_letters.page, name, after, query.limit)
    letters = [
        of(
            DeadRecord,
            redaction.letter(each),
            key=key_of(dead_letters.place_of(each)),
            record=record(each.record, redaction),
        )
        for each in page.letters
    ]
    return DeadRecords(dead_letters=letters, total=total, next=key_of(page.after) if page.after else None)


async def make_group(request: Request, body: NewGroup) -> MadeGroup:
    """Make a group of a topic; one that exists stays where it is."""
    topic, position = await path_params.topic_of(request), body.found()
    with field("name"):
        check_group_name(body.name)
    async with audit.audited(request, "make group", topic=topic.name, group=body.name, position=str(position)):
        created = await topic.execute(group_admin.make, body.name, position)
    return MadeGroup(name=body.name, created=created)


async def move_group(request: Request, body: Place) -> Group:
    """Let a group go on from elsewhere; what it has unacked stays with its consumers."""
    topic, name, position = await path_params.topic_of(request), request.path_params["group"], body.found()
    await group_info(topic, name)
    async with audit.audited(request, "move group", topic=topic.name, group=name, position=str(position)):
        await topic.execute(group_admin.move, name, position)
    return of(Group, await group_info(topic, name))


async def destroy_group(request: Request, body: Destroy) -> DestroyedGroup:
    """Take a group away, with its unacked list and its dead letters; the topic keeps its records."""
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    check_confirmed(body.confirm, "group", name)
    await group_info(topic, name)
    async with audit.audited(request, "destroy group", topic=topic.name, group=name):
        await topic.execute(group_admin.destroy, name)
    return DestroyedGroup(name=name)


async def claim_records(request: Request, body: Claim) -> Claimed:
    """Let a consumer of a group take over what others have not acked for long, up to 100 records."""
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    check_times(idle_seconds=body.idle_seconds)
    with known_group(topic.name, name), field("consumer"):
        check_group_name(body.consumer, "consumer name")
        if not body.new:
            await check_known(topic, name, body.consumer)
    async with audit.audited(request, "claim", topic=topic.name, group=name, consumer=body.consumer) as line:
        with known_group(topic.name, name):
            done = await topic.execute(reclaim.reclaim, name, body.consumer, body.idle_seconds, MOST_CLAIMED, None)
        line["count"] = len(done.records)
    return Claimed(ids=[each.id for each in done.records], ghosts=done.ghosts)


async def requeue_dead_letters(request: Request, body: Letters) -> Task:
    """Give dead letters back to their group, as a task."""
    return await _letters(request, "requeue", body.keys)


async def delete_dead_letters(request: Request, body: Letters) -> Task:
    """Delete dead letters of a group, as a task; the topic keeps its records."""
    return await _letters(request, "delete", body.keys)


async def requeue_all_dead_letters(request: Request, body: AllLetters) -> Task:
    """Give all dead letters back to their group, as a task."""
    return await _all_letters(request, "requeue", body)


async def delete_all_dead_letters(request: Request, body: AllLetters) -> Task:
    """Delete all dead letters of a group, as a task; the topic keeps its records."""
    return await _all_letters(request, "delete", body)


async def _letters(request: Request, act: str, keys: list[str]) -> Task:
    with field("keys"):
        places = tuple(dict.fromkeys(map(place_of, keys)))
    return await _began(request, DeadRecordsRequest(act, places))


async def _all_letters(request: Request, act: str, body: AllLetters) -> Task:
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    check_confirmed(body.confirm, "group", name)
    return await _began(request, DeadRecordsRequest(act, (), await topic.execute(dead_letters.last_ms, name)))


async def _began(request: Request, asked: DeadRecordsRequest) -> Task:
    topic, name = await path_params.topic_of(request), request.path_params["group"]
    total = (await group_info(topic, name)).dead
    return await begun(start(request, topic, asked, total, secrets.token_urlsafe()))


@contextlib.contextmanager
def known_group(topic: str, name: str) -> Iterator[None]:
    """Turn the error for a group that the topic does not have into a 404."""
    try:
        yield
    except UnknownGroup as error:
        raise HTTPException(404, f"Topic {topic} has no group {name}.") from error


OPERATIONS = [
    Operation("GET", GROUP, get_group),
    Operation("GET", DEAD, list_group_dead_letters),
    Operation("POST", f"{TOPIC}/groups", make_group, action="make group"),
    Operation("POST", f"{GROUP}/move", move_group, action="move group"),
    Operation("POST", f"{GROUP}/destroy", destroy_group, action="destroy group"),
    Operation("POST", f"{GROUP}/claim", claim_records, action="claim"),
    Operation("POST", f"{DEAD}/requeue", requeue_dead_letters, action="requeue dead", status=202),
    Operation("POST", f"{DEAD}/delete", delete_dead_letters, action="delete dead", status=202),
    Operation("POST", f"{DEAD}/requeue-all", requeue_all_dead_letters, action="requeue dead", status=202),
    Operation("POST", f"{DEAD}/delete-all", delete_all_dead_letters, action="delete dead", status=202),
]
