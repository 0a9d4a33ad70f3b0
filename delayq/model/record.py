"""Records: what a topic holds, and what its readers get."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple

import msgspec

from delayq.model.delivery import Handed, P
from delayq.model.envelope import FORMAT, JSON, Envelope, open_body, parse_unstamped
from delayq.model.units import from_ms

ENVELOPE = b"e"
"""The field of a stream entry that holds what `Topic.publish` was given."""


class Published(NamedTuple):
    """What became of a record.

    Attributes:
        id: the record's id in the topic; of one that waits for its time, the id by which it can be cancelled.
        due_at: when it is due; None for one that is in the topic already.
        created: False when a record with this id waited already, and was left.
    """

    id: str
    due_at: dt.datetime | None = None
    created: bool = True


class Record(Handed, Generic[P], eq=False, gc=False):
    """One entry of a topic.

    Attributes:
        topic: the topic's name.
        id: milliseconds and a counter, as in "1700000000000-0"; it rises from record to record (of a shard).
        fields: as the stream holds them: names and values, one behind the other.
        deliveries: how often the group was handed it, with this time; 0 for one that was read without a group.
        shard: of the topic, from 0.
    """

    topic: str
    id: str
    fields: Sequence[bytes]
    deliveries: int = 0
    shard: int = 0
    _envelope: Any = None
    _payload: Any = msgspec.UNSET

    @property
    def payload(self) -> P:
        """The payload as it was published, or what a typed handler is annotated with.

        Of an entry that another program has appended, it is a dict of its fields.

        Raises:
            UnreadableEnvelope: the stored bytes are not what `Topic.publish` stores.
        """
        if self._payload is not msgspec.UNSET:
            return self._payload  # type: ignore[no-any-return]
        envelope = self._opened()
        found: Any = self.values if envelope is None else open_body(envelope)
        return found  # type: ignore[no-any-return]

    def read(self, reader: Callable[[Envelope], P]) -> P:
        """Read the payload by `reader`, and keep what it returns as `payload`."""
        envelope = self._opened()
        if envelope is None:
            envelope = Envelope(FORMAT, JSON, msgspec.json.encode(self.values), 0)
        self._payload = reader(envelope)
        return self._payload  # type: ignore[no-any-return]

    @property
    def labels(self) -> dict[str, Any]:
        """What log lines tell of it."""
        return {"topic": self.topic, "id": self.id, "delivery": self.deliveries}

    @property
    def body(self) -> bytes:
        """The payload as bytes; empty for an entry that another program has appended."""
        envelope = self._opened()
        return b"" if envelope is None else envelope.body

    @property
    def headers(self) -> dict[str, Any]:
        """What the publisher added."""
        envelope = self._opened()
        return {} if envelope is None else envelope.headers or {}

    @property
    def values(self) -> dict[str, str]:
        """The fields as text."""
        texts = [each.decode(errors="replace") for each in self.fields]
        return dict(zip(texts[::2], texts[1::2], strict=False))

    @property
    def published_at(self) -> dt.datetime:
        """When it was appended, by the server's clock, as far as the server made the id."""
        return from_ms(int(self.id.partition("-")[0]))

    @property
    def envelope(self) -> Envelope | None:
        """The payload and its headers as they are stored; None for an entry that another program has appended."""
        return self._opened()

    def _opened(self) -> Envelope | None:
        if self._envelope is None and len(self.fields) > 1 and self.fields[0] == ENVELOPE:
            self._envelope = parse_unstamped(self.fields[1])
        envelope: Envelope | None = self._envelope
        return envelope

    def __repr__(self) -> str:
        return f"<Record {self.id} of {self.topic}>"


class Unacked(NamedTuple):
    """A record that a group was handed and has not acked.

    Attributes:
        id: of the record.
        consumer: who was handed it last.
        idle: seconds since then.
        deliveries: how often the group was handed it.
        shard: of the topic, from 0.
    """

    id: str
    consumer: str
    idle: float
    deliveries: int
    shard: int = 0


class GroupInfo(NamedTuple):
    """What is known of a group.

    Attributes:
        name: of the group.
        consumers: how many it has.
        unacked: records that they were handed and have not acked.
        lag: records that it was not handed yet.
        position: the last record that it was handed; of several shards, the lowest.
        at_least: the lag may be larger. After `set_position`, and always on Redis 6.2, the server does not know it, and
            delayq counts up to 10,000 records itself, fewer large ones.
        dead: its dead letters.
    """

    name: str
    consumers: int
    unacked: int
    lag: int
    position: str
    at_least: bool = False
    dead: int = 0


def lag_text(groups: Sequence[GroupInfo]) -> str:
    """Return the longest lag of groups: "1,200", or "at least 10,000" when one may have more; "0" without any."""
    longest = max((each.lag for each in groups), default=0)
    return f"{'at least ' * any(each.at_least for each in groups)}{longest:,}"


class GroupConsumer(NamedTuple):
    """What is known of a consumer of a group.

    Attributes:
        name: of the consumer.
        unacked: records that it holds.
        idle: seconds since it was heard of.
    """

    name: str
    unacked: int
    idle: float


class DeadRecord(NamedTuple):
    """A dead letter of a group.

    Attributes:
        id: of the dead letter.
        record: as it was in the topic.
        consumer: who was handed it last.
        deliveries: how often the group was handed it.
        reason: why it is dead.
        errors: what its failed deliveries said, oldest first, as far as they are kept.
    """

    id: str
    record: Record
    consumer: str
    deliveries: int
    reason: str
    errors: list[str]

    @property
    def died_at(self) -> dt.datetime:
        """When, by the server's clock."""
        return from_ms(int(self.id.partition("-")[0]))


class Trimmed(NamedTuple):
    """What `trim_acked` has done.

    Attributes:
        dropped: how many records.
        slowest: the group that needs the oldest record of all, None when there is no group; of several shards, that of
            the last one in which something was kept back.
        oldest: the id of the oldest record that it may need.
    """

    dropped: int
    slowest: str | None
    oldest: str | None


def text_of(value: Any) -> str:
    """Return bytes of Redis as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def table(flat: Sequence[Any]) -> dict[str, Any]:
    """Return names and values, one behind the other, as a dict."""
    return {text_of(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
