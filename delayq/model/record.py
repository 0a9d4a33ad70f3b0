"""Records: the entries of a topic, as its readers get them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias

import msgspec

from delayq.errors import PayloadMismatch, UnreadableEnvelope
from delayq.model.delivery import Handed, P
from delayq.model.envelope import FORMAT, JSON, Envelope, open_body, parse_unstamped
from delayq.model.positions import Place
from delayq.model.units import from_ms

ENVELOPE = b"e"
"""The field of a stream entry that holds the payload given to `Topic.publish`."""


Entry: TypeAlias = tuple[str, Sequence[bytes] | None]
"""A stream entry: its id and fields; None if the record is gone."""


class Extent(NamedTuple):
    """The length and the bounds of a topic.

    Attributes:
        length: the number of records.
        first: the id of the first one, or "".
        last: the last id that was assigned; "0-0" before the first.
        added: how many records were ever appended; None if the server does not count them (Redis 6.2).
        mark: tells it from a later one with its name; "" if it has none, because another program or an earlier version
            appended its first record.
    """

    length: int
    first: str
    last: str
    added: int | None
    mark: str = ""


def known_mark(noted: str, first: str, trimmed: int | None) -> str:
    """Return the mark that was noted for a stream, or "" if it belongs to an earlier stream.

    Args:
        first: the id of its first entry.
        trimmed: how many entries are gone from it; None if unknown.
    """
    return noted if noted.partition(" ")[0] == first or trimmed != 0 else ""


def is_for_one_group(fields: Sequence[bytes]) -> bool:
    """Whether a record was appended again for only one group, as its last field says."""
    return fields[-2:-1] == [b"delayq:group"]


class Published(NamedTuple):
    """The result of publishing a record.

    Attributes:
        id: the record's id in the topic; for a record that waits until it is due, the id to cancel it by.
        due_at: when it is due; None if it is already in the topic.
        created: False if a record with this id was already waiting and was kept.
    """

    id: str
    due_at: dt.datetime | None = None
    created: bool = True


class PackedEntry(NamedTuple):
    """An entry of a ledger with several events: its id, and the events that are not acked."""

    id: str
    left: set[str]


class Record(Handed, Generic[P], eq=False, gc=False):
    """One entry of a topic.

    Attributes:
        topic: the topic's name.
        id: milliseconds and a counter, such as "1700000000000-0"; it rises from record to record within a shard.
        fields: names and values in turn, as the stream holds them.
        deliveries: how often the group has received it, including this time; 0 if it was read without a group.
        shard: the shard of the topic, from 0.
        group_mark: tells it from records that had its id before the group was created again; "*" if it was read
            without a group.
        packed: for an event of a ledger that a group has received, the entry that it shares with others, or None.
        is_unreadable: True once its content was read and could not be, or had another type.
    """

    topic: str
    id: str
    fields: Sequence[bytes]
    deliveries: int = 0
    shard: int = 0
    group_mark: str = "*"
    packed: PackedEntry | None = None
    is_unreadable: bool = False
    _envelope: Any = None
    _payload: Any = msgspec.UNSET

    @property
    def payload(self) -> P:
        """The payload as it was published; in a typed handler, a value of the annotated type.

        For an entry that another program appended, it is a dict of its fields.

        Raises:
            UnreadableEnvelope: the stored bytes are not what `Topic.publish` stores.
        """
        if self._payload is not msgspec.UNSET:
            return self._payload  # type: ignore[no-any-return]
        envelope = self._opened()
        found: Any = self.values if envelope is None else self._tried(open_body, envelope)
        return found  # type: ignore[no-any-return]

    def read(self, reader: Callable[[Envelope], P]) -> P:
        """Read the payload with `reader` and keep the result as `payload`."""
        envelope = self._opened()
        if envelope is None:
            envelope = Envelope(FORMAT, JSON, msgspec.json.encode(self.values), 0)
        self._payload = self._tried(reader, envelope)
        return self._payload  # type: ignore[no-any-return]

    @property
    def labels(self) -> dict[str, Any]:
        """The fields that identify it in log lines."""
        return {"topic": self.topic, "id": self.id, "delivery": self.deliveries}

    @property
    def body(self) -> bytes:
        """The payload as bytes; empty for an entry that another program appended."""
        envelope = self._opened()
        return b"" if envelope is None else envelope.body

    @property
    def headers(self) -> dict[str, Any]:
        """What the publisher added."""
        envelope = self._opened()
        return {} if envelope is None else envelope.sent_headers

    @property
    def values(self) -> dict[str, str]:
        """The fields as text."""
        texts = [each.decode(errors="replace") for each in self.fields]
        return dict(zip(texts[::2], texts[1::2], strict=False))

    @property
    def published_at(self) -> dt.datetime:
        """When it was appended, by the server's clock, if the server made the id."""
        return from_ms(int(self.id.partition("-")[0]))

    @property
    def entry_id(self) -> str:
        """The id of its entry in the stream."""
        return self.id if self.packed is None else self.packed.id

    @property
    def place(self) -> Place:
        """Where it is in its topic."""
        return Place(self.shard, self.id)

    @property
    def envelope(self) -> Envelope | None:
        """The payload and its headers as they are stored; None for an entry that another program appended."""
        return self._opened()

    def _opened(self) -> Envelope | None:
        if self._envelope is None and len(self.fields) > 1 and self.fields[0] == ENVELOPE:
            self._envelope = self._tried(parse_unstamped, self.fields[1])
        envelope: Envelope | None = self._envelope
        return envelope

    def _tried(self, read: Callable[[Any], Any], stored: Any) -> Any:
        try:
            return read(stored)
        except (UnreadableEnvelope, PayloadMismatch):
            self.is_unreadable = True
            raise

    def __repr__(self) -> str:
        return f"<Record {self.id} of {self.topic}>"


class Unacked(NamedTuple):
    """A record that a group received and has not acked.

    Attributes:
        id: the id of the record.
        consumer: who received it last.
        idle: seconds since then.
        deliveries: how often the group has received it.
        shard: the shard of the topic, from 0.
    """

    id: str
    consumer: str
    idle: float
    deliveries: int
    shard: int = 0


class GroupInfo(NamedTuple):
    """A group of a topic.

    Attributes:
        name: the name of the group.
        consumers: how many it has.
        unacked: records that they received and have not acked.
        lag: records that the group has not received yet.
        position: the last record that it received; with several shards, the lowest.
        at_least: whether the lag may be larger. After `set_position`, and always on Redis 6.2, the server does not know
            the lag; delayq then counts up to 10,000 records itself, or fewer if they are large.
        dead: the number of its dead letters.
    """

    name: str
    consumers: int
    unacked: int
    lag: int
    position: str
    at_least: bool = False
    dead: int = 0


class GroupReading(NamedTuple):
    """A group, as metrics report it.

    Attributes:
        seen: how many of its consumers were seen within the last minute.
        age: for how many seconds the first record that it has not received has been there; 0 if there is none, or if
            its id is not a time.
    """

    info: GroupInfo
    seen: int
    age: float


class GroupConsumer(NamedTuple):
    """A consumer of a group.

    Attributes:
        name: the name of the consumer.
        unacked: records that it holds.
        idle: seconds since it was last active.
    """

    name: str
    unacked: int
    idle: float


class DeadRecord(NamedTuple):
    """A dead letter of a group.

    Attributes:
        id: the id of the dead letter.
        record: the record as it was in the topic.
        consumer: who received it last.
        deliveries: how often the group received it.
        reason: why it is dead.
        errors: the errors of its failed deliveries, oldest first, as far as they are kept.
    """

    id: str
    record: Record
    consumer: str
    deliveries: int
    reason: str
    errors: list[str]

    @property
    def died_at(self) -> dt.datetime:
        """When it died, by the server's clock."""
        return from_ms(int(self.id.partition("-")[0]))

    @property
    def place(self) -> Place:
        """Where it is among the dead letters of its group."""
        return Place(self.record.shard, self.id)


class DeadPage(NamedTuple):
    """A page of dead letters, the longest dead first, and the place after which the next page begins, or None."""

    letters: list[DeadRecord]
    after: Place | None


class TrimPlan(NamedTuple):
    """What to keep of a topic: the newest `length` records of each shard, or those from `since_ms` on."""

    length: int | None = None
    since_ms: int | None = None


class Trimmed(NamedTuple):
    """The result of `trim_acked`.

    Attributes:
        dropped: how many records were dropped.
        slowest: the group that needs the oldest record, or None if there is no group. With several shards, the group
            of the last shard in which records were kept.
        oldest: the id of the oldest record that this group may need.
    """

    dropped: int
    slowest: str | None
    oldest: str | None


def text_of(value: Any) -> str:
    """Return bytes from Redis as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def table(flat: Sequence[Any]) -> dict[str, Any]:
    """Return alternating names and values as a dict."""
    return {text_of(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
