"""Topics: their records, and how far each group is."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.errors import UnknownGroup, UnreadableEnvelope
from delayq.model import record as model
from delayq.model.positions import known_id
from delayq.operations.topics import dead_letters, group_admin, group_read, read
from delayq.web import path_params
from delayq.web.api.operation import Operation
from delayq.web.api.values import (
    Answer,
    Given,
    HeaderValues,
    PayloadKind,
    header_values,
    of,
    payload_fields,
    payload_value,
)
from delayq.web.forms import field

PAGE = 50
MOST_LISTED = 200

TOPIC = "/servers/{server}/topics/{topic}"
GROUP = f"{TOPIC}/groups/{{group}}"


class Group(Answer):
    """A group of a topic.

    Attributes:
        consumers: how many it has.
        unacked: records that they were handed and have not acked.
        lag: records that it was not handed yet.
        at_least: whether the lag may be larger.
        position: the last record that it was handed.
        dead: its dead letters.
    """

    name: str
    consumers: int
    unacked: int
    lag: int
    at_least: bool
    position: str
    dead: int


class TopicName(Answer):
    """A topic of a server."""

    name: str


class Topics(Answer):
    """A page of topics, by name.

    Attributes:
        total: how many topics the server has.
        next: give it as `after` for the next page; null on the last one.
    """

    topics: list[TopicName]
    total: int
    next: str | None


class Topic(Answer):
    """A topic, and its groups by name, up to 200.

    Attributes:
        length: how many records it holds.
        groups_count: how many groups there are.
    """

    name: str
    length: int
    groups: list[Group]
    groups_count: int


class Record(Answer):
    """A record of a topic.

    Attributes:
        published_at: when it was appended, by the server's clock.
        payload_kind: "json" where `payload` holds it, "bytes" where `payload_base64` does, "gone" where it cannot be
            read.
        payload: JSON; of an entry that another program has appended, its fields.
        payload_base64: bytes, in base64.
    """

    id: str
    published_at: dt.datetime
    headers: HeaderValues
    payload_kind: PayloadKind
    payload_bytes: int | None
    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class Records(Answer):
    """Records of a topic.

    Attributes:
        next: give it as `after` for those that follow; null where nothing does.
    """

    records: list[Record]
    next: str | None


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
        record: as it was in the topic.
        consumer: who was handed it last.
        deliveries: how often the group was handed it.
        errors: what its failed deliveries said, the oldest first, as far as they are kept.
    """

    id: str
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
    """

    dead_letters: list[DeadRecord]
    total: int


class TopicsQuery(Given):
    """Which topics to list.

    Attributes:
        after: `next` of the page before.
        limit: topics of a page.
    """

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = PAGE


class RecordsQuery(Given):
    """Which records to list.

    Attributes:
        after: the id of a record: those behind it, or before it where `newest_first` is true.
        newest_first: from the end of the topic to its beginning.
        limit: records of a page.
    """

    after: str = ""
    newest_first: bool = False
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = PAGE


class DeadQuery(Given):
    """How many dead letters to list."""

    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = PAGE


async def list_topics(request: Request, query: TopicsQuery) -> Topics:
    """List the topics of a server, by name, a page at a time."""
    names = await path_params.server_of(request).topic_names()
    behind = [name for name in names if name > query.after]
    page = behind[: query.limit]
    more = page[-1] if len(behind) > len(page) else None
    return Topics(topics=[TopicName(name=name) for name in page], total=len(names), next=more)


async def get_topic(request: Request) -> Topic:
    """Return the length of a topic and how far its groups are."""
    topic = await path_params.topic_of(request)
    groups = await topic.execute(group_admin.groups)
    return Topic(
        name=topic.name,
        length=await topic.execute(read.length),
        groups=[of(Group, each) for each in groups[:MOST_LISTED]],
        groups_count=len(groups),
    )


async def list_records(request: Request, query: RecordsQuery) -> Records:
    """List the records of a topic, the oldest first, or the newest."""
    topic = await path_params.topic_of(request)
    with field("after"):
        behind = f"({known_id(query.after)}" if query.after else ""
    bounds = ("-", behind or "+") if query.newest_first else (behind or "-", "+")
    found = await topic.execute(read.records_range, *bounds, query.limit, query.newest_first)
    more = found[-1].id if len(found) == query.limit else None
    return Records(records=[record(each) for each in found], next=more)


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
    with known_group(topic.name, name):
        found = await topic.execute(dead_letters.dead, name, query.limit)
    total = await topic.execute(dead_letters.count, name)
    return DeadRecords(dead_letters=[of(DeadRecord, each, record=record(each.record)) for each in found], total=total)


@contextlib.contextmanager
def known_group(topic: str, name: str) -> Iterator[None]:
    """Turn the error for a group that the topic does not have into a 404."""
    try:
        yield
    except UnknownGroup as error:
        raise HTTPException(404, f"Topic {topic} has no group {name}.") from error


def record(seen: model.Record) -> Record:
    """Return a record as answers have it."""
    try:
        return of(Record, seen, headers=header_values(seen.headers), **payload_value(seen.payload, seen.body))
    except UnreadableEnvelope:  # another program has written it
        return of(Record, seen, headers={}, **payload_fields(None))


OPERATIONS = [
    Operation("GET", "/servers/{server}/topics", list_topics),
    Operation("GET", TOPIC, get_topic),
    Operation("GET", f"{TOPIC}/records", list_records),
    Operation("GET", GROUP, get_group),
    Operation("GET", f"{GROUP}/dead-letters", list_group_dead_letters),
]
