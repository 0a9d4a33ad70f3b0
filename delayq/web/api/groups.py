"""Groups of topics: their consumers, unacked records and dead letters."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from delayq.model import positions
from delayq.model import record as record_model
from delayq.model.actions import DEAD_ACTIONS, GROUP_ACTIONS, Action
from delayq.model.positions import Position, beginning
from delayq.model.validation import check_group_name
from delayq.web import audit, path_params, render
from delayq.web.api.jobs import Job, begun
from delayq.web.api.operation import Operation
from delayq.web.api.topics import MOST_LISTED, PAGE, TOPIC, Group, Record, record
from delayq.web.api.values import Answer, Given, Moment, Name, Seconds, check_confirmed, check_moments, check_times, of
from delayq.web.forms import InvalidField, field
from delayq.web.group_changes import DeadLetters
from delayq.web.groups import check_known, claim, group_info, group_of, known
from delayq.web.record_keys import MOST_KEYS, key_of, place_of
from delayq.web.redaction import in_turns
from delayq.web.routes import ACT, VIEW

GROUP = f"{TOPIC}/groups/{{group}}"
DEAD = f"{GROUP}/dead-letters"

MAKE, MOVE, DESTROY, CLAIM = (GROUP_ACTIONS[each].audited for each in ("make", "move", "destroy", "claim"))
"""What audit lines call the actions."""


class GroupConsumer(Answer):
    """A consumer of a group.

    Attributes:
        unacked: the number of records that it holds.
        idle_seconds: time since it was last seen.
    """

    name: str
    unacked: int
    idle_seconds: float


class UnackedRecord(Answer):
    """A record that was delivered to a group, which has not acked it.

    Attributes:
        consumer: the consumer that received it last.
        idle_seconds: time since then.
        deliveries: the number of deliveries to the group.
    """

    id: str
    consumer: str
    idle_seconds: float
    deliveries: int


class GroupDetail(Answer):
    """A group, with its consumers by name and its unacked records by id, up to 200 of each."""

    group: Group
    consumers: list[GroupConsumer]
    unacked: list[UnackedRecord]


class DeadRecord(Answer):
    """A dead letter of a group.

    Attributes:
        key: its key in requests.
        record: the record as it was in the topic.
        consumer: the consumer that received it last.
        deliveries: the number of deliveries to the group.
        errors: the errors of its failed deliveries, the oldest first, as far as they are kept.
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
        total: the number of dead letters.
        next: pass it as `after` to get the next page; null on the last page.
    """

    dead_letters: list[DeadRecord]
    total: int
    next: str | None


class Place(Given):
    """Where a group starts to read.

    Attributes:
        position: $ for records published from now on, 0 for the first record, or the id of the record before the first.
        at: instead of `position`: records published at this time or later.
    """

    position: str | UnsetType = UNSET
    at: Moment | None = None

    def found(self) -> Position:
        """Return the library's form of it; raises InvalidInput."""
        if self.at is not None and self.position is not UNSET:
            raise InvalidField("at", "position and at are both given: give one of them")
        check_moments(at=self.at)
        with field("position"):
            found: Position = self.at or ("$" if self.position is UNSET else self.position)
            beginning(found, "position")
        return found


class NewGroup(Place, kw_only=True):
    """A group to create.

    Attributes:
        name: 1 to 256 bytes.
        position: $ for records published from now on, 0 for the first record, or the id of the record before the first.
        at: instead of `position`: records published at this time or later.
    """

    name: Name


class MadeGroup(Answer):
    """A group.

    Attributes:
        created: false if it already existed; then it keeps its position.
    """

    name: str
    created: bool


class Destroy(Given):
    """A confirmation.

    Attributes:
        confirm: the name of the group.
    """

    confirm: str


class DestroyedGroup(Answer):
    """A group that was destroyed."""

    name: str


class Claim(Given):
    """Which records a consumer claims.

    Attributes:
        consumer: 1 to 256 bytes.
        idle_seconds: claim records that have been unacked for at least this long.
        new: create the consumer if the group does not have it.
    """

    consumer: Name
    idle_seconds: Seconds
    new: bool = False


class Claimed(Answer):
    """The claimed records, at most 100 at a time.

    Attributes:
        ids: the ids of the claimed records.
        ghosts: the number of trimmed records that were removed from the list of unacked records.
    """

    ids: list[str]
    ghosts: int


class Letters(Given):
    """The dead letters to act on.

    Attributes:
        keys: their keys, 1 to 100.
    """

    keys: Annotated[list[Name], Meta(min_length=1, max_length=MOST_KEYS)]


class AllLetters(Given):
    """All dead letters of the group.

    Attributes:
        confirm: the name of the group.
    """

    confirm: str


class DeadQuery(Given):
    """Which dead letters to list.

    Attributes:
        after: `next` of the previous page.
        limit: dead letters per page.
    """

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = PAGE


async def get_group(request: Request) -> GroupDetail:
    """Return a group with its consumers and unacked records."""
    group = await group_of(request)
    with known(group):
        info, members = await group.info(), await group.consumers()
        unacked = await group.unacked(count=MOST_LISTED)
    return GroupDetail(
        group=of(Group, info),
        consumers=[of(GroupConsumer, each) for each in members[:MOST_LISTED]],
        unacked=[of(UnackedRecord, each) for each in unacked],
    )


async def list_group_dead_letters(request: Request, query: DeadQuery) -> DeadRecords:
    """List the dead letters of a group, the longest dead first."""
    group = await group_of(request)
    with field("after"):
        after = place_of(query.after) if query.after else None
    total = (await group_info(group)).dead
    redaction = render.redaction(request)
    page = await group.dead_page(after, query.limit)

    def shown(letter: record_model.DeadRecord) -> DeadRecord:
        key = key_of(letter.place)
        return of(DeadRecord, redaction.letter(letter), key=key, record=record(letter.record, redaction))

    letters = await in_turns(shown, page.letters)
    return DeadRecords(dead_letters=letters, total=total, next=key_of(page.after) if page.after else None)


async def make_group(request: Request, body: NewGroup) -> MadeGroup:
    """Create a group of a topic. An existing group keeps its position."""
    topic, position = await path_params.topic_of(request), body.found()
    with field("name"):
        check_group_name(body.name)
    async with audit.audited(request, MAKE, topic=topic.name, group=body.name, position=str(position)):
        group = await topic.group(body.name, position)
    return MadeGroup(name=body.name, created=group.is_new)


async def move_group(request: Request, body: Place) -> Group:
    """Move a group to another position. Unacked records stay with their consumers."""
    group, position = await group_of(request), body.found()
    await group_info(group)
    async with audit.audited(request, MOVE, topic=group.topic, group=group.name, position=str(position)):
        await group.set_position(position)
    return of(Group, await group_info(group))


async def destroy_group(request: Request, body: Destroy) -> DestroyedGroup:
    """Destroy a group, with its list of unacked records and its dead letters. The topic keeps its records."""
    group = await group_of(request)
    check_confirmed(body.confirm, "group", group.name)
    await group_info(group)
    async with audit.audited(request, DESTROY, topic=group.topic, group=group.name):
        await group.destroy()
    return DestroyedGroup(name=group.name)


async def claim_records(request: Request, body: Claim) -> Claimed:
    """Claim up to 100 records for a consumer that others have not acked for some time."""
    topic = await path_params.topic_of(request)
    group = await group_of(request, topic)
    check_times(idle_seconds=body.idle_seconds)
    with known(group), field("consumer"):
        check_group_name(body.consumer, "consumer name")
        if not body.new:
            await check_known(group, body.consumer)
    async with audit.audited(request, CLAIM, topic=group.topic, group=group.name, consumer=body.consumer) as line:
        with known(group):
            done = await claim(topic, group.name, body.consumer, body.idle_seconds)
        line["count"] = len(done.records)
    return Claimed(ids=[each.id for each in done.records], ghosts=done.ghosts)


def _selected(action: Action) -> Operation:
    """Return the operation that acts on selected dead letters."""

    async def run(request: Request, body: Letters) -> Job:
        with field("keys"):
            places = tuple(dict.fromkeys(map(place_of, body.keys)))
        return await _begun(request, action, places)

    name, path = f"{action.name}_dead_letters", f"{DEAD}/{action.name}"
    return Operation(ACT, path, run, name=name, text=action.about, action=action.audited, status=202)


def _all(action: Action) -> Operation:
    """Return the operation that acts on all dead letters."""

    async def run(request: Request, body: AllLetters) -> Job:
        check_confirmed(body.confirm, "group", request.path_params["group"])
        return await _begun(request, action)

    name, path = f"{action.name}_all_dead_letters", f"{DEAD}/{action.name}-all"
    return Operation(ACT, path, run, name=name, text=action.about_matching, action=action.audited, status=202)


async def _begun(request: Request, action: Action, places: Sequence[positions.Place] = ()) -> Job:
    topic = await path_params.topic_of(request)
    asked = DeadLetters(topic, await group_of(request, topic))
    await asked.select(action, places)
    return await begun(asked.start(request, secrets.token_urlsafe()))


OPERATIONS = [
    Operation(VIEW, GROUP, get_group),
    Operation(VIEW, DEAD, list_group_dead_letters),
    Operation(ACT, f"{TOPIC}/groups", make_group, action=MAKE),
    Operation(ACT, f"{GROUP}/move", move_group, action=MOVE),
    Operation(ACT, f"{GROUP}/destroy", destroy_group, action=DESTROY),
    Operation(ACT, f"{GROUP}/claim", claim_records, action=CLAIM),
    *map(_selected, DEAD_ACTIONS.values()),
    *map(_all, DEAD_ACTIONS.values()),
]
