"""Topics: their records, the progress of their groups, and publishing."""

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
from delayq.model.actions import RECORD_ACTIONS
from delayq.model.positions import known_id, own_id
from delayq.model.units import timestamp_ms
from delayq.model.validation import check_id
from delayq.web import audit, path_params, record_changes, render
from delayq.web.api.jobs import Job, begun
from delayq.web.api.operation import Operation
from delayq.web.api.send import CreateQuery
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
from delayq.web.record_keys import MOST_KEYS, key_of, place_of
from delayq.web.redaction import Redaction, in_turns
from delayq.web.routes import ACT, VIEW

PAGE = 50
MOST_LISTED = 200

TOPIC = "/servers/{server}/topics/{topic}"

DELETE = RECORD_ACTIONS["delete"].audited


class Group(Answer):
    """A group of a topic.

    Attributes:
        consumers: the number of its consumers.
        unacked: the number of records that they received and have not acked.
        lag: the number of records that it has not received yet.
        at_least: whether the lag may be larger.
        position: the id of the last record that it received.
        dead: the number of its dead letters.
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
        total: the number of topics on the server.
        next: pass it as `after` to get the next page; null on the last page.
    """

    topics: list[TopicName]
    total: int
    next: str | None


class Topic(Answer):
    """A topic, and its groups by name, up to 200.

    Attributes:
        length: the number of its records.
        groups_count: the number of its groups.
    """

    name: str
    length: int
    groups: list[Group]
    groups_count: int


class Record(Answer):
    """A record of a topic.

    Attributes:
        key: its key in requests.
        published_at: when it was appended, by the server's clock.
        payload_kind: "json" if the payload is in `payload`, "bytes" if it is in `payload_base64`, "gone" if it cannot
            be read.
        payload: JSON; for an entry of another program, its fields.
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
        next: pass it as `after` to get the next page; null on the last page.
    """

    records: list[Record]
    next: str | None


class NewRecord(Given):
    """A record to publish.

    Attributes:
        payload: any JSON, sent exactly as written; or give `payload_base64`.
        payload_base64: bytes, in base64.
        delay_seconds: until it is appended; or give `at`. Without both, it is appended now.
        at: when it is appended.
        id: with a delay: 1 to 256 bytes, null for a random id. Without: an id such as 1700000000000-0, higher than the
            last record's.
        key: records with the same key keep their order.
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
    """The result of publishing a record.

    Attributes:
        id: the id of the record, or of the waiting message that will be appended.
        due_at: when it is appended; null if it already was.
        created: false if a record with this id was already waiting, and was kept.
    """

    id: str
    due_at: dt.datetime | None
    created: bool


class Keys(Given):
    """The records to act on.

    Attributes:
        keys: their keys, 1 to 100.
    """

    keys: Annotated[list[Name], Meta(min_length=1, max_length=MOST_KEYS)]


class Deleted(Answer):
    """The number of deleted records."""

    done: int


class Trim(Given):
    """Which records a topic keeps, by number or by age.

    Attributes:
        confirm: the name of the topic.
        keep_records: the number of newest records to keep per shard; or give `keep_since`.
        keep_since: keep records published at this time or later.
    """

    confirm: str
    keep_records: Annotated[int, Meta(ge=0, le=10**15)] | None = None
    keep_since: Moment | None = None


class TopicsQuery(Given):
    """Which topics to list.

    Attributes:
        after: `next` of the previous page.
        limit: topics per page.
    """

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = PAGE


class RecordsQuery(Given):
    """Which records to list.

    Attributes:
        after: the id of the last record of the previous page.
        newest_first: start at the end of the topic.
        limit: records per page.
    """

    after: str = ""
    newest_first: bool = False
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = PAGE


async def list_topics(request: Request, query: TopicsQuery) -> Topics:
    """List the topics of a server, by name, a page at a time."""
    names = await path_params.server_of(request).all_names("topic")
    behind = [name for name in names if name > query.after]
    page = behind[: query.limit]
    more = page[-1] if len(behind) > len(page) else None
    return Topics(topics=[TopicName(name=name) for name in page], total=len(names), next=more)


async def get_topic(request: Request) -> Topic:
    """Return the length of a topic and the progress of its groups."""
    topic = await path_params.topic_of(request)
    groups = await topic.groups()
    return Topic(
        name=topic.name,
        length=await topic.length(due=False),
        groups=[of(Group, each) for each in groups[:MOST_LISTED]],
        groups_count=len(groups),
    )


async def list_records(request: Request, query: RecordsQuery) -> Records:
    """List the records of a topic, the oldest or the newest first."""
    topic = await path_params.topic_of(request)
    with field("after"):
        behind = f"({known_id(query.after)}" if query.after else ""
    bounds = ("-", behind or "+") if query.newest_first else (behind or "-", "+")
    found = await topic.range(*bounds, query.limit, query.newest_first, due=False)
    more = found[-1].id if len(found) == query.limit else None
    redaction = render.redaction(request)
    return Records(records=await in_turns(lambda each: record(each, redaction), found), next=more)


async def publish_record(request: Request, query: CreateQuery, body: NewRecord) -> Published:
    """Publish a record. Add an Idempotency-Key to repeat the request safely."""
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
        done = await topic.publish(
            payload, delay=body.delay_seconds, at=body.at, id=body.id, key=body.key, headers=headers
        )
        line["id"] = done.id
    return of(Published, done)


async def delete_records(request: Request, body: Keys) -> Deleted:
    """Permanently delete records, for all groups, acked or not."""
    topic = await path_params.topic_of(request)
    with field("keys"):
        places = [*dict.fromkeys(map(place_of, body.keys))]
    async with audit.audited(request, DELETE, topic=topic.name, ids=[*map(key_of, places)]) as line:
        done = await record_changes.delete(topic, places)
        line["told"] = f"{done:,} of {len(places):,}"
    return Deleted(done=done)


async def trim_topic(request: Request, body: Trim) -> Job:
    """Delete the oldest records of a topic, acked or not, as a job."""
    topic = await path_params.topic_of(request)
    check_confirmed(body.confirm, "topic", topic.name)
    if (body.keep_records is None) is (body.keep_since is None):
        raise InvalidField("keep_records", "give either keep_records or keep_since")
    check_moments(keep_since=body.keep_since)
    since_ms = None if body.keep_since is None else timestamp_ms(body.keep_since)
    change = record_changes.Trim(topic)
    change.keep(model.TrimPlan(length=body.keep_records, since_ms=since_ms))
    return await begun(change.start(request, secrets.token_urlsafe()))


def record(seen: model.Record, redaction: Redaction) -> Record:
    """Return a record as an answer has it."""
    key, envelope, headers = key_of(seen.place), None, dict[str, Any]()
    with contextlib.suppress(UnreadableEnvelope):  # another program has written it
        envelope = seen.envelope
        headers = seen.headers
        if envelope is None:
            envelope = envelope_of(redaction.headers(seen.values))
    fields = payload_fields(envelope, redaction)
    return of(Record, seen, key=key, headers=header_values(redaction.headers(headers)), **fields)


OPERATIONS = [
    Operation(VIEW, "/servers/{server}/topics", list_topics),
    Operation(VIEW, TOPIC, get_topic),
    Operation(VIEW, f"{TOPIC}/records", list_records),
    Operation(ACT, f"{TOPIC}/records/delete", delete_records, action=DELETE),
    Operation(ACT, f"{TOPIC}/trim", trim_topic, action=RECORD_ACTIONS["trim"].audited, status=202),
    Operation(ACT, f"{TOPIC}/records", publish_record, action="publish"),
]
