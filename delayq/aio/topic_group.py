"""A group of a topic of the async face: its consumers share the topic's records, each going to one of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

from delayq.model.positions import Position
from delayq.model.record import DeadRecord, GroupConsumer, GroupInfo, Record, Unacked
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_group_name
from delayq.operations.topics import dead_letters, group_admin, group_read, reclaim
from delayq.operations.topics.dead_letters import REQUEUED
from delayq.operations.topics.topic_context import TopicContext, check_deliveries
from delayq.transport.executor_async import Executor


class Group:
    """What `Topic.group` returns. Calls raise UnknownGroup when the group was destroyed.

    Attributes:
        topic: the name of the topic.
        name: of the group.
        max_deliveries: of a record, before it is a dead letter; None for any number.
    """

    def __init__(
        self,
        context: TopicContext,
        executor: Executor,
        wait: Callable[[list[str], float], Awaitable[None]],
        name: str,
        max_deliveries: int | None = None,
    ) -> None:
        self.topic = context.name
        self.name = check_group_name(name)
        self.max_deliveries = check_deliveries(max_deliveries)
        self._context = context
        self._executor = executor
        self._do = executor.execute
        self._wait = wait

    def __repr__(self) -> str:
        return f"<aio.Group {self.name} of {self.topic}>"

    async def poll(self, consumer: str, count: int = 10, wait: Seconds = 0) -> list[Record]:
        """Take up to `count` (1 to 10,000) records that nobody of this group was handed yet, oldest first.

        Args:
            consumer: who takes them, 1 to 256 bytes; made when it is new. What it does not `ack` stays with it, for
                `own_unacked` and `fetch_not_acked`.
            wait: seconds (0 or more) or a timedelta to wait for the first one. When it is over, a poll ends behind 500
                records of a shard that came back for other groups, and the next one continues.
        """
        check_group_name(consumer, "consumer name")
        deadline = time.monotonic() + milliseconds(wait, "wait") / 1000
        while True:
            handed = await self._do(group_read.poll(self._context, self.name, consumer, count))
            left = deadline - time.monotonic()
            if handed.records or (left <= 0 and not handed.came_due):
                return handed.records
            if not handed.more:
                await self._wait(handed.lasts, left)

    async def own_unacked(self, consumer: str, count: int = 100) -> list[Record]:
        """Read again up to `count` records that a consumer holds, oldest first, as after a restart under its name."""
        check_group_name(consumer, "consumer name")
        return await self._do(group_read.own_unacked(self._context, self.name, consumer, count))

    async def ack(self, records: Record | str | Iterable[Record | str]) -> int:
        """Tell that records are done with; return how many were unacked until now.

        Args:
            records: one or several, as `poll` returned them, or their ids (in a topic of a single shard).
        """
        return await self._do(group_read.ack(self._context, self.name, records))

    async def fetch_not_acked(self, consumer: str, ack_timeout: Seconds = 30, count: int = 100) -> list[Record]:
        """Take over up to `count` records that anybody of this group took `ack_timeout` ago or earlier, oldest first.

        Of several who ask, one gets a record. One that was delivered `max_deliveries` times becomes a dead letter, one
        that was trimmed meanwhile leaves the unacked list.
        """
        check_group_name(consumer, "consumer name")
        found = await self._do(
            reclaim.reclaim(self._context, self.name, consumer, ack_timeout, count, self.max_deliveries)
        )
        return found.records

    async def unacked(self, consumer: str | None = None, *, idle: Seconds = 0, count: int = 100) -> list[Unacked]:
        """List up to `count` records that this group, or one of its consumers, took `idle` ago or earlier, by id.

        Raises:
            UnknownConsumer: nothing was found, and the group has no consumer of that name.
        """
        if consumer is not None:
            check_group_name(consumer, "consumer name")
        return await self._do(group_read.unacked(self._context, self.name, consumer, idle, count))

    async def clear_ghosts(self) -> int:
        """Clear the unacked list of records that were trimmed or deleted; return how many there were."""
        return await self._do(group_admin.clear_ghosts(self._context, self.name))

    async def info(self) -> GroupInfo:
        """Return what is known of the group: its lag, and more."""
        return await self._do(group_admin.info(self._context, self.name))

    async def lag(self) -> int:
        """Count the records that nobody of this group was handed yet; `info` says whether there may be more."""
        info = await self.info()
        return info.lag

    async def set_position(self, position: Position) -> None:
        """Let the group go on from elsewhere: "$" behind the last record, "0" before the first, an id, a time.

        What it has unacked stays so.
        """
        await self._do(group_admin.move(self._context, self.name, position))

    async def consumers(self) -> list[GroupConsumer]:
        """List the consumers, by name."""
        return await self._do(group_admin.consumers(self._context, self.name))

    async def remove_consumer(self, name: str, to: str | None = None) -> int:
        """Remove a consumer; return how many records were handed over.

        Args:
            to: who is to have what it holds, without a delivery being counted; None when it holds nothing.

        Raises:
            HoldsRecords: it holds records, and `to` is None; nothing was changed.
            UnknownConsumer: the group has no consumer of that name.
        """
        return await self._do(group_admin.remove_consumer(self._context, self.name, name, to))

    async def bury(self, record: Record, consumer: str, reason: str = "rejected", error: object = None) -> bool:
        """Let a record that `consumer` holds become a dead letter of the group; whether it did hold it."""
        return await self._do(dead_letters.dead_letter(self._context, self.name, consumer, record, reason, error))

    async def dead(self, count: int = 100) -> list[DeadRecord]:
        """List up to `count` dead letters, the longest dead first."""
        return await self._do(dead_letters.dead(self._context, self.name, count))

    async def requeue_dead(self, letters: DeadRecord | Iterable[DeadRecord]) -> int:
        """Bring dead letters back, as if never delivered; return how many there were.

        A record that was trimmed is appended to the topic again, for this group alone.

        They are taken over by the next `fetch_not_acked`, as are records of a consumer that died.
        """
        places = map(dead_letters.place_of, [letters] if isinstance(letters, DeadRecord) else letters)
        return await self._do(dead_letters.requeue(self._context, self.name, REQUEUED, places))

    async def delete_dead(self, letters: DeadRecord | Iterable[DeadRecord]) -> int:
        """Delete dead letters for good; return how many there were."""
        places = map(dead_letters.place_of, [letters] if isinstance(letters, DeadRecord) else letters)
        return await self._do(dead_letters.delete(self._context, self.name, places))

    async def dead_length(self) -> int:
        """Count the dead letters."""
        return await self._do(dead_letters.count(self._context, self.name))

    async def destroy(self) -> bool:
        """Take the group away, with its unacked list and its dead letters; whether it was there."""
        return await self._do(group_admin.destroy(self._context, self.name))
