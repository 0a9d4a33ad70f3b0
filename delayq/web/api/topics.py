"""Topics: their records, how far each group is, and publishing."""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from delayq.errors import UnreadableEnvelope
from delayq.model import record as model
from delayq.model.positions import Place, known_id, own_id
from delayq.model.units import timestamp_ms
from delayq.model.validation import check_id
from delayq.operations.topics import group_admin, read, trim
from delayq.web import audit, path_params, render
from delayq.web.api.operation import Operation
from delayq.web.api.send import CreateQuery
from delayq.web.api.tasks import Task, begun
from delayq.web.api.values import (
    Answer,
    Given,
    HeaderValues,
    Moment,
    Name,
    PayloadKind,
    Seconds,
    check_confirmed,
    check_due,
    check_moments,
    envelope_of,
    header_values,
    headers_of,
    of,
    payload_fields,
    required_payload,
)
from delayq.web.forms import InvalidField, field
from delayq.web.pages.change_records import MOST_IDS, start_trim
from delayq.web.record_keys import key_of, place_of
from delayq.web.redaction import Redaction

PAGE = 50
MOST_LISTED = 200

TOPIC = "/servers/{server}/topics/{topic}"


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
        key: by which requests name it.
        published_at: when it was appended, by the server's clock.
        payload_kind: "json" where `payload` holds it, "bytes" where `payload_base64` does, "gone" where it cannot be
            read.
        payload: JSON; of an entry that another program has appended, its fields.
        payload_base64: bytes, in base64.
    """

    id: str
    key: str
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


class NewRecord(Given):
    """A record to publish.

    Attributes:
        payload: any JSON, which arrives as it is written; or give `payload_base64`.
        payload_base64: bytes, in base64.
        delay_seconds: until it is appended; or give `at`. Without both, it is appended at once.
        at: when it is appended.
        id: of one that waits for its time: 1 to 256 bytes, a random one when it is null. Of one that does not: as in
            1700000000000-0, higher than that of the last record.
        key: records of one key keep their order.
        headers: bytes are {"base64": "…"}.
    """

    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    delay_seconds: Seconds | None = None
    at: Moment | None = None
    id: str | None = None
    key: str | None = None
    headers: HeaderValues = msgspec.field(default_factory=dict)


class Published(Answer):
    """What became of a record.

    Attributes:
        id: that of the record; of one that waits, the one under which it waits.
        due_at: when it is appended; null for one that is there already.
        created: false when one with this id waited already, and was left.
    """

    id: str
    due_at: dt.datetime | None
    created: bool


class Keys(Given):
    """Which records are meant.

    Attributes:
        keys: their keys, 1 to 100.
    """

    keys: Annotated[list[Name], Meta(min_length=1, max_length=MOST_IDS)]


class Deleted(Answer):
    """How many records were deleted."""

    done: int


class Trim(Given):
    """Which records a topic keeps: the newest, or the young.

    Attributes:
        confirm: the name of the topic.
        keep_records: how many to keep, of each shard; or give `keep_since`.
        keep_since: keep what was published then or later.
    """

    confirm: str
    keep_records: Annotated[int, Meta(ge=0, le=10**15)] | None = None
    keep_since: Moment | None = None


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
    return Records(records=[record(each, render.redaction(request)) for each in found], next=more)


async def publish_record(request: Request, query: CreateQuery, body: NewRecord) -> Published:
    """Publish a record. Give an Idempotency-Key to make the request safe to repeat."""
    if query.create:
        topic = await path_params.server_of(request).topic(request.path_params["topic"])
    else:
        topic = await path_params.topic_of(request)
    check_due(body.delay_seconds, body.at)
    payload, headers = required_payload(body.payload, body.payload_base64), headers_of(body.headers) or None
    with field("id"):
        if body.id is not None:
            (check_id if body.delay_seconds is not None or body.at else own_id)(body.id)
    async with audit.audited(request, "publish", topic=topic.name, id=body.id) as line:
        done = await topic.publish(payload, body.delay_seconds, body.at, id=body.id, key=body.key, headers=headers)
        line["id"] = done.id
    return of(Published, done)


async def delete_records(request: Request, body: Keys) -> Deleted:
    """Delete records for good, for every group, acked or not."""
    topic = await path_params.topic_of(request)
    with field("keys"):
        places = [*dict.fromkeys(map(place_of, body.keys))]
    records = [model.Record(topic.name, each.id, (), 0, each.shard) for each in places]
    async with audit.audited(request, "delete records", topic=topic.name, ids=[*map(key_of, places)]) as line:
        done = await topic.execute(trim.delete, records)
        line["told"] = f"{done:,} of {len(places):,}"
    return Deleted(done=done)


async def trim_topic(request: Request, body: Trim) -> Task:
    """Drop the oldest records of a topic, acked or not, as a task."""
    topic = await path_params.topic_of(request)
    check_confirmed(body.confirm, "topic", topic.name)
    if (body.keep_records is None) is (body.keep_since is None):
        raise InvalidField("keep_records", "give either keep_records or keep_since")
    check_moments(keep_since=body.keep_since)
    since_ms = None if body.keep_since is None else timestamp_ms(body.keep_since)
    plan = trim.TrimPlan(length=body.keep_records, since_ms=since_ms)
    return await begun(start_trim(request, topic, plan, secrets.token_urlsafe()))


def record(seen: model.Record, redaction: Redaction) -> Record:
    """Return a record as answers have it."""
    key, envelope, headers = key_of(Place(seen.shard, seen.id)), None, dict[str, Any]()
    with contextlib.suppress(UnreadableEnvelope):  # another program has written it
        envelope = seen.envelope
        headers = seen.headers
        if envelope is None:
            envelope = envelope_of(redaction.headers(seen.values))
    fields = payload_fields(envelope, redaction)
    return of(Record, seen, key=key, headers=header_values(redaction.headers(headers)), **fields)


OPERATIONS = [
    Operation("GET", "/servers/{server}/topics", list_topics),
    Operation("GET", TOPIC, get_topic),
    Operation("GET", f"{TOPIC}/records", list_records),
    Operation("POST", f"{TOPIC}/records/delete", delete_records, action="delete records"),
    Operation("POST", f"{TOPIC}/trim", trim_topic, action="trim", status=202),
    Operation("POST", f"{TOPIC}/records", publish_record, action="publish"),
]
