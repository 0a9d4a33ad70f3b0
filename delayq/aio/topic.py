"""A topic of the async face: what is published to it, each of its groups gets."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Self

from delayq.aio.connecting import check_client, connect
from delayq.aio.connection import Client, Connection
from delayq.aio.group import Group
from delayq.aio.listener import Listener
from delayq.envelope import MAX_PAYLOAD_BYTES, Headers
from delayq.times import Seconds, milliseconds
from delayq.topic import FOR_EVER
from delayq.topics import grouping, publishing, reading, trimming
from delayq.topics.core import TopicCore, TopicSettings
from delayq.topics.keys import TopicKeys
from delayq.topics.positions import Position
from delayq.topics.publishing import NewRecord
from delayq.topics.record import GroupInfo, Published, Record, Trimmed


class Topic:
    """Records in Redis, each handed to every group that reads them, and kept until they are trimmed: a Redis Stream.

    Nothing is connected before the first call. A topic belongs to one event loop.

    Args:
        name: 1 to 128 bytes, printable, without braces and ``#``. A queue may have the same one.
        url: of the server; DELAYQ_URL, or the embedded store, when neither it nor `redis` is given.
        redis: a client to use as it is, instead of `url`.
        prefix: what all keys begin with.
        shards: over how many hash slots the topic is spread, 1 to 1,024; None takes what Redis has recorded. Records
            keep their order within a shard, so those of one `key` do.
        max_length: records (of each shard) that publishing keeps; None for all. What a group has not acked goes, too:
            `trim_acked` is for those who must not lose it.
        exact: keep no more than `max_length`; else up to a hundred more or so, at much less cost.
        max_payload: bytes.
        clock: for tests: returns the time, in milliseconds, that delayed records go by instead of the server's.

    Raises:
        InvalidInput: naming the argument. Calls raise it, too, for theirs, and ServerError for the server's troubles.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        redis: Client | None = None,
        prefix: str = "delayq",
        shards: int | None = 1,
        max_length: int | None = None,
        exact: bool = False,
        max_payload: int = MAX_PAYLOAD_BYTES,
        clock: Callable[[], float | str] = str,
    ) -> None:
        check_client(url, redis)
        settings = TopicSettings(max_length, exact, max_payload)
        self.name = name
        self.core = TopicCore(name, lambda shard: TopicKeys.of_topic(prefix, name, shard), shards, settings, clock)
        self.connection = Connection(lambda: redis or connect(url), shared=redis is not None)
        self._listeners: list[Listener] = []  # that nobody waits with

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that this topic has made; a client that was passed in stays open."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.close()
        await self.connection.close()

    async def publish(
        self,
        payload: Any,
        delay: Seconds | None = None,
        at: dt.datetime | None = None,
        *,
        id: str | None = None,  # the public name
        key: str | None = None,
        headers: Headers | None = None,
        max_length: int | None = None,
        exact: bool | None = None,
    ) -> Published:
        """Publish a record; the options are those of `NewRecord`.

        Args:
            max_length: records to keep, instead of the topic's own number.
            exact: keep no more than that, instead of what the topic says.

        Raises:
            InvalidInput: an argument is out of range; nothing was stored.
            RecordOrder: `id` does not come after the last record's; nothing was stored.
        """
        record = NewRecord(payload, delay=delay, at=at, id=id, key=key, headers=headers)
        return (await self.connection.do(publishing.publish(self.core, [record], max_length, exact)))[0]

    async def publish_many(
        self, records: Iterable[NewRecord], *, max_length: int | None = None, exact: bool | None = None
    ) -> list[Published]:
        """Publish any number of records, in batches; the results stand in their order.

        All are checked before the first is stored. A failure of the server in the middle leaves some of them in.
        """
        return await self.connection.do(publishing.publish(self.core, records, max_length, exact))

    async def cancel(self, id: str) -> bool:
        """Withdraw a record that waits for its time, by the id that `publish` has returned; whether it still waited."""
        return await self.connection.do(publishing.withdraw(self.core, id))

    async def range(
        self, start: Position = "-", end: Position = "+", count: int = 100, reverse: bool = False
    ) -> list[Record]:
        """Read up to `count` (1 to 1,000,000) records from `start` to `end`, oldest first, or newest first.

        Args:
            start: "-" for the first one, an id, "(" and an id to leave that one out, or an aware datetime.
            end: "+" for the last one, or as `start`.
            reverse: from the end to the start.
        """
        await self.connection.do(publishing.append_due(self.core))
        return await self.connection.do(reading.records_range(self.core, start, end, count, reverse))

    async def length(self) -> int:
        """Count the records."""
        await self.connection.do(publishing.append_due(self.core))
        return await self.connection.do(reading.length(self.core))

    async def tail(self, start: Position = "$", wait: Seconds | None = None) -> AsyncIterator[Record]:
        """Yield records as they come, for ever, or until none has come for `wait`.

        Args:
            start: "$" from now on, "0" from the first one, the id behind which to begin, or an aware datetime.
            wait: seconds (0 or more) or a timedelta.
        """
        patience = None if wait is None else milliseconds(wait, "wait") / 1000
        place = reading.Tail(self.core, start)
        await self.connection.do(place.begin())
        listener = Listener(self.core, self.connection)
        try:
            since = time.monotonic()
            while True:
                if found := await self.connection.do(place.more()):
                    for record in found:
                        yield record
                    since = time.monotonic()
                    continue
                left = FOR_EVER if patience is None else since + patience - time.monotonic()
                if left <= 0:
                    return
                await listener.wait(place.seen, left)
        finally:
            await listener.close()

    async def group(self, name: str, start: Position = "$", *, max_deliveries: int | None = None) -> Group:
        """Return a group of this topic, made if it is missing.

        Args:
            name: 1 to 256 bytes, printable.
            start: where a new one begins: "$" with what comes from now on, "0" with all there is, behind an id, or at
                an aware datetime. One that exists goes on where it is.
            max_deliveries: of a record, 1 or more: then it is a dead letter of the group; None for any number.
        """
        group = Group(self.core, self.connection, self._wait, name, max_deliveries)
        await self.connection.do(grouping.make(self.core, name, start))
        return group

    async def groups(self) -> list[GroupInfo]:
        """List the groups, by name."""
        return await self.connection.do(grouping.groups(self.core))

    async def trim(
        self, *, max_length: int | None = None, min_id: Position | None = None, approximate: bool = True
    ) -> int:
        """Drop the oldest records, acked or not; return how many.

        Args:
            max_length: how many to keep (of each shard).
            min_id: the id, or the time, of the oldest one to keep, instead of `max_length`.
            approximate: keep up to a hundred or so more, at less cost.
        """
        return await self.connection.do(trimming.trim(self.core, max_length, min_id, approximate))

    async def delete(self, records: Record | str | Iterable[Record | str]) -> int:
        """Delete single records, acked or not; return how many were there.

        Args:
            records: one or several, as they were read, or their ids (in a topic of a single shard).
        """
        return await self.connection.do(trimming.delete(self.core, records))

    async def trim_acked(self) -> Trimmed:
        """Drop the records that every group has acknowledged; return how many, and which group keeps the others.

        A topic without a group keeps all: nobody has acknowledged anything.
        """
        return await self.connection.do(trimming.trim_acked(self.core))

    async def shrink_by_last_size(self) -> int:
        """Drop what was there at the last call already, acked or not; return how many records."""
        return await self.connection.do(trimming.shrink(self.core))

    async def _wait(self, lasts: list[str], seconds: float) -> None:
        """Return when there may be a record behind one of `lasts`, after `seconds` at the latest; for groups."""
        listeners = self._listeners
        listener = listeners.pop() if listeners else Listener(self.core, self.connection)
        try:
            await listener.wait(lasts, seconds)
        finally:
            if listeners is self._listeners:
                listeners.append(listener)
            else:  # the topic was closed meanwhile
                await listener.close()
