"""A topic of the async API: each of its groups gets every record that is published to it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Concatenate, Never, ParamSpec, Self, TypeVar

from delayq.aio.topic_group import Group
from delayq.model.envelope import MAX_PAYLOAD_BYTES, Headers
from delayq.model.other_libraries import surplus_argument
from delayq.model.positions import Position
from delayq.model.record import GroupInfo, GroupReading, Published, Record, Trimmed
from delayq.model.server_guard import labelled
from delayq.model.units import Seconds, milliseconds
from delayq.operations.topics import explain, group_admin, publish, read, trim
from delayq.operations.topics.publish import NewRecord
from delayq.operations.topics.topic_context import TopicContext, TopicSettings
from delayq.protocol.operation import Operation, Program
from delayq.protocol.topic_keys import TopicKeys
from delayq.runtime.receive_wait_async import TopicWait
from delayq.runtime.receiver_async import TopicWaits
from delayq.transport.executor_async import Client, Executor
from delayq.transport.open_client_async import check_client, connect

P = ParamSpec("P")
T = TypeVar("T")


class Topic:
    """Records in Redis that every group of readers gets, kept until they are trimmed: a Redis Stream.

    It connects at the first call. A topic belongs to one event loop.

    Args:
        name: 1 to 128 bytes, printable, without braces and ``#``. A queue may have the same one.
        url: of the server. Without `url` and `redis`: DELAYQ_URL, or else the embedded store.
        redis: a client to use instead of `url`.
        prefix: of all keys.
        shards: the number of hash slots that the topic uses, 1 to 1,024; None for the number recorded in Redis.
            Records keep their order within a shard, and so do those with the same `key`.
        max_length: records (per shard) that publishing keeps; None for all. This also drops records that a group
            has not acked: use `trim_acked` to keep those.
        exact: keep exactly `max_length`; otherwise up to about a hundred more, at much lower cost.
        max_payload: bytes.
        dead_retention: how long dead letters of its groups are kept, seconds (0 or more) or a timedelta; None for no
            limit. Programs that poll delete older ones once a minute: give all of them the same value.
        clock: for tests: a function that returns the time, ms, that delayed records use instead of the server's.

    Raises:
        InvalidInput: naming the argument. Calls raise it too, and ServerError if the server fails.
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
        dead_retention: Seconds | None = 90 * 86400,
        clock: Callable[[], float | str] | None = None,
    ) -> None:
        check_client(url, redis)
        settings = TopicSettings(max_length, exact, max_payload, dead_retention)
        self.name = name
        self._context = TopicContext(
            name, lambda shard: TopicKeys.of_topic(prefix, name, shard), shards, settings, clock or str
        )
        label = labelled(f"topic {name}", redis)
        self._executor = Executor(lambda: connect(url) if redis is None else redis, redis is not None, label)
        self._context.spans_nodes = self._executor.spans_nodes
        self._context.is_away = self._executor.is_away
        self._waits = TopicWaits(self._context, self._executor)

    def __repr__(self) -> str:
        return f"<aio.Topic {self.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that this topic has opened; a client that you passed in stays open."""
        await self._waits.close()
        await self._executor.close()

    async def execute(
        self,
        operation: Callable[Concatenate[TopicContext, P], Operation[T] | Program[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run one of `delayq.operations` on this topic: ``topic.execute(function, …)``; it gets the context first.

        The command line and the dashboard use it where this class has no method. Operations may change with any
        version.
        """
        return await self._executor.execute(operation(self._context, *args, **kwargs))

    async def publish(
        self,
        payload: Any,
        *surplus: Never,
        delay: Seconds | None = None,
        at: dt.datetime | None = None,
        id: str | None = None,  # the public name
        key: str | None = None,
        headers: Headers | None = None,
        max_length: int | None = None,
        exact: bool | None = None,
    ) -> Published:
        """Publish a record; the options are those of `NewRecord`.

        Args:
            max_length: records to keep, instead of the topic's own number.
            exact: whether to keep exactly that many, instead of the topic's own setting.

        Raises:
            InvalidInput: an argument is out of range; nothing was stored.
            RecordOrder: `id` does not come after the last record's; nothing was stored.
        """
        if surplus:
            raise surplus_argument("publish", "one payload", surplus[0])
        record = NewRecord(payload, delay=delay, at=at, id=id, key=key, headers=headers)
        [published] = await self._executor.execute(publish.publish(self._context, [record], max_length, exact))
        return published

    async def publish_many(
        self, records: Iterable[NewRecord], *, max_length: int | None = None, exact: bool | None = None
    ) -> list[Published]:
        """Publish any number of records, in batches; the results are in the same order.

        All are checked before the first is stored. If the server fails in between, some of them are stored, and the
        error says how many.
        """
        return await self._executor.execute(publish.publish(self._context, records, max_length, exact))

    async def cancel(self, id: str) -> bool:
        """Withdraw a delayed record by the id that `publish` returned; return whether it still waited."""
        return await self._executor.execute(publish.cancel(self._context, id))

    async def range(
        self, start: Position = "-", end: Position = "+", count: int = 100, reverse: bool = False, *, due: bool = True
    ) -> list[Record]:
        """Read up to `count` (1 to 1,000,000) records from `start` to `end`, oldest first, or newest first.

        Args:
            start: "-" for the first record, an id, "(" and an id to exclude it, or an aware datetime.
            end: "+" for the last record, or as `start`.
            reverse: from the end to the start.
            due: first append the records that are due, which needs the right to write.
        """
        if due:
            await self._executor.execute(publish.append_all_due(self._context))
        return await self._executor.execute(read.records_range(self._context, start, end, count, reverse))

    async def length(self, *, due: bool = True) -> int:
        """Count the records; `due` is that of `range`."""
        if due:
            await self._executor.execute(publish.append_all_due(self._context))
        return await self._executor.execute(read.length(self._context))

    async def tail(self, start: Position = "$", wait: Seconds | None = None) -> AsyncIterator[Record]:
        """Yield records as they arrive, without end or until none arrives for `wait`.

        Args:
            start: "$" for new records only, "0" for the first record, the id after which to start, or an aware
                datetime.
            wait: seconds (0 or more) or a timedelta.
        """
        timeout = None if wait is None else milliseconds(wait, "wait") / 1000
        place = read.Tail(self._context, start)
        await self._executor.execute(place.begin())
        waiting = TopicWait(self._context, self._executor)
        try:
            since = time.monotonic()
            while True:
                if found := await self._executor.execute(place.more()):
                    for record in found:
                        yield record
                    since = time.monotonic()
                    continue
                left = FOR_EVER if timeout is None else since + timeout - time.monotonic()
                if left <= 0:
                    return
                await waiting.wait(place.seen, left)
        finally:
            await waiting.close()

    async def group(
        self, name: str, start: Position = "$", *, max_deliveries: int | None = None, create: bool = True
    ) -> Group:
        """Return a group of this topic; it is created if missing.

        Args:
            name: 1 to 256 bytes, printable.
            start: where a new group starts: "$" for new records only, "0" for the first record, after an id, or at
                an aware datetime. An existing group keeps its position.
            max_deliveries: a record becomes a dead letter of the group after this many, 1 or more; None for no limit.
            create: if False, a missing group is not created, and its calls raise UnknownGroup.

        Raises:
            ServerNotReady: it is missing, and a shard is unavailable whose records it would miss.
        """
        group = Group(self._context, self._executor, self._waits.wait, name, max_deliveries)
        if create:
            group.is_new = await self._executor.execute(group_admin.make(self._context, name, start))
        return group

    async def why(self, id: str) -> str:
        """Say in one sentence where a record is, by the id that `publish` returned.

        Possible answers: it waits for its time; it is in the topic, and for each group, whether it was delivered
        and acked; or it is not there.
        """
        return await self._executor.execute(explain.why(self._context, id))

    async def groups(self, *, quick: bool = False) -> list[GroupInfo]:
        """List the groups, by name.

        Args:
            quick: count a lag that the server does not know only up to 1,000 records (per shard).
        """
        return await self._executor.execute(group_admin.groups(self._context, quick))

    async def group_readings(self) -> list[GroupReading]:
        """Return what metrics report of the groups, by name; their lags are those of `groups(quick=True)`."""
        return await self._executor.execute(group_admin.readings(self._context))

    async def trim(
        self, *, max_length: int | None = None, min_id: Position | None = None, approximate: bool = True
    ) -> int:
        """Drop the oldest records, acked or not; return how many.

        Args:
            max_length: how many to keep (per shard).
            min_id: instead of `max_length`: the id or time of the oldest record to keep.
            approximate: keep up to about a hundred more, at lower cost.
        """
        return await self._executor.execute(trim.trim(self._context, max_length, min_id, approximate))

    async def delete(self, records: Record | str | Iterable[Record | str]) -> int:
        """Delete single records, acked or not; return how many were there.

        Args:
            records: one or several, as they were read, or their ids (in a topic of a single shard).

        Raises:
            InvalidInput: this is the ledger of a queue, whose events cannot be deleted one by one.
        """
        return await self._executor.execute(trim.delete(self._context, records))

    async def trim_acked(self) -> Trimmed:
        """Drop the records that every group has acked; return how many, and which group holds back the others.

        A topic without a group keeps all of its records.
        """
        return await self._executor.execute(trim.trim_acked(self._context))

    async def shrink_by_last_size(self) -> int:
        """Drop the records that existed at the last call, acked or not; return how many."""
        return await self._executor.execute(trim.shrink(self._context))


FOR_EVER = 365 * 86400.0  # seconds
