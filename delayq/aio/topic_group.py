"""A group of a topic of the async API: its consumers share the topic's records, each going to one of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

from delayq.model.positions import Place, Position
from delayq.model.record import DeadPage, DeadRecord, GroupConsumer, GroupInfo, Record, Unacked
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_group_name
from delayq.operations.topics import dead_letters, group_admin, group_read, reclaim
from delayq.operations.topics.event_records import each_event
from delayq.operations.topics.topic_context import TopicContext, check_deliveries
from delayq.protocol.topic_commands import REQUEUED
from delayq.transport.executor_async import Executor


class Group:
    """A group of a topic, from `Topic.group`. Calls raise UnknownGroup if the group was destroyed.

    Attributes:
        topic: the name of the topic.
        name: of the group.
        max_deliveries: of a record, before it becomes a dead letter; None for no limit.
        is_new: whether `Topic.group` has created it.
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
        self.is_new = False
        self._context = context
        self._executor = executor
        self._do = executor.execute
        self._wait = wait

    def __repr__(self) -> str:
        return f"<aio.Group {self.name} of {self.topic}>"

    async def poll(self, consumer: str, count: int = 10, wait: Seconds = 0) -> list[Record]:
        """Take up to `count` (1 to 10,000) records that are new to this group, oldest first.

        Args:
            consumer: the consumer that takes them, 1 to 256 bytes; created if new. Records that it does not `ack`
                stay with it, for `own_unacked` and `fetch_not_acked`.
            wait: how long to wait for the first one, seconds (0 or more) or a timedelta. After that, a poll ends
                after 500 records of a shard that were requeued for other groups, and the next poll continues.
        """
        check_group_name(consumer, "consumer name")
        deadline = time.monotonic() + milliseconds(wait, "wait") / 1000
        while True:
            handed = await self._do(group_read.poll(self._context, self.name, consumer, count))
            left = deadline - time.monotonic()
            if handed.records or (left <= 0 and not handed.came_due):
                return each_event(self._context, handed.records)
            if not handed.more:
                await self._wait(handed.lasts, left)

    async def own_unacked(self, consumer: str, count: int = 100) -> list[Record]:
        """Read again up to `count` records that a consumer holds, oldest first, as after a restart with its name."""
        check_group_name(consumer, "consumer name")
        found = await self._do(group_read.own_unacked(self._context, self.name, consumer, count))
        return each_event(self._context, found)

    async def ack(self, records: Record | str | Iterable[Record | str]) -> int:
        """Ack records; return how many were unacked until now.

        Args:
            records: one or several, as `poll` returned them, or their ids (in a topic of a single shard).
        """
        return await self._do(group_read.ack(self._context, self.name, records))

    async def fetch_not_acked(self, consumer: str, ack_timeout: Seconds = 30, count: int = 100) -> list[Record]:
        """Take over up to `count` records that any consumer took at least `ack_timeout` ago, oldest first.

        Only one of several callers gets a record. A record that was delivered `max_deliveries` times becomes a dead
        letter; a trimmed one leaves the unacked list.
        """
        check_group_name(consumer, "consumer name")
        found = await self._do(
            reclaim.reclaim(self._context, self.name, consumer, ack_timeout, count, self.max_deliveries)
        )
        return each_event(self._context, found.records)

    async def unacked(self, consumer: str | None = None, *, idle: Seconds = 0, count: int = 100) -> list[Unacked]:
        """List up to `count` records that this group, or one of its consumers, took at least `idle` ago, by id.

        Raises:
            UnknownConsumer: nothing was found, and the group has no consumer with that name.
        """
        if consumer is not None:
            check_group_name(consumer, "consumer name")
        return await self._do(group_read.unacked(self._context, self.name, consumer, idle, count))

    async def clear_ghosts(self) -> int:
        """Remove trimmed and deleted records from the unacked list; return how many there were."""
        return await self._do(group_admin.clear_ghosts(self._context, self.name))

    async def info(self, *, quick: bool = False) -> GroupInfo:
        """Return what is known about the group: its lag, and more; `quick` is that of `Topic.groups`."""
        return await self._do(group_admin.info(self._context, self.name, quick))

    async def lag(self) -> int:
        """Count the records that are not yet delivered to this group; `info` says whether there may be more."""
        info = await self.info()
        return info.lag

    async def set_position(self, position: Position) -> None:
        """Move the group: "$" after the last record, "0" before the first, after an id, or to a time.

        Unacked records stay unacked.
        """
        await self._do(group_admin.move(self._context, self.name, position))

    async def consumers(self) -> list[GroupConsumer]:
        """List the consumers, by name."""
        return await self._do(group_admin.consumers(self._context, self.name))

    async def remove_consumer(self, name: str, to: str | None = None) -> int:
        """Remove a consumer; return how many records were handed over.

        Args:
            to: the consumer that takes over its records, without counting a delivery; None if it holds nothing.

        Raises:
            HoldsRecords: it holds records, and `to` is None; nothing was changed.
            UnknownConsumer: the group has no consumer with that name.
        """
        return await self._do(group_admin.remove_consumer(self._context, self.name, name, to))

    async def bury(self, record: Record, consumer: str, reason: str = "rejected", error: object = None) -> bool:
        """Make a record that `consumer` holds a dead letter of the group; return whether it held the record."""
        return await self._do(dead_letters.dead_letter(self._context, self.name, consumer, record, reason, error))

    async def dead(self, count: int = 100) -> list[DeadRecord]:
        """List up to `count` dead letters, the longest dead first."""
        return await self._do(dead_letters.dead(self._context, self.name, count))

    async def dead_page(self, after: Place | None = None, count: int = 100) -> DeadPage:
        """Return a page of dead letters: up to `count` (1 to 499), or fewer if they are large.

        Args:
            after: `after` of the previous page; None for the first page.
        """
        return await self._do(dead_letters.page(self._context, self.name, after, count))

    async def get_dead(self, place: Place) -> DeadRecord | None:
        """Return the dead letter at its `place`; None if it does not exist."""
        return await self._do(dead_letters.get(self._context, self.name, place))

    async def requeue_dead(self, letters: DeadRecord | Place | Iterable[DeadRecord | Place]) -> int:
        """Requeue dead letters, or those at these places, as if they had never been delivered; return how many.

        An idle consumer takes them over immediately, as does the next `fetch_not_acked`. A record that was trimmed is
        appended to the topic again, for this group alone, so the next `poll` returns it.
        """
        places = map(dead_letters.place_of, [letters] if isinstance(letters, DeadRecord | Place) else letters)
        return await self._do(dead_letters.requeue(self._context, self.name, REQUEUED, places))

    async def delete_dead(self, letters: DeadRecord | Place | Iterable[DeadRecord | Place]) -> int:
        """Permanently delete dead letters, or those at these places; return how many there were."""
        places = map(dead_letters.place_of, [letters] if isinstance(letters, DeadRecord | Place) else letters)
        return await self._do(dead_letters.delete(self._context, self.name, places))

    async def dead_length(self) -> int:
        """Count the dead letters."""
        return await self._do(dead_letters.count(self._context, self.name))

    async def destroy(self) -> bool:
        """Destroy the group with its unacked list and its dead letters; return whether it existed.

        Unacked records go first, 500 at a time, the oldest first. If this is interrupted, the group still exists and
        may have lost some of them: call it again. Consumers of the group end with UnknownGroup. They create a group
        again only if it was lost, not destroyed: see `TopicConsumer.run`.
        """
        return await self._do(group_admin.destroy(self._context, self.name))
