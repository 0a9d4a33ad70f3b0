"""The ledger of a queue as a topic: read it, let groups follow it, trim it."""

from __future__ import annotations

from typing import Any, NoReturn

from delayq.aio.topic import Topic
from delayq.operations.queue_context import QueueContext
from delayq.operations.topics.ledger_context import LedgerContext, refuse_to_publish
from delayq.runtime.receiver_async import TopicWaits
from delayq.transport.executor_async import Executor


class Ledger(Topic):
    """`Queue.events`: a record for each entry of the ledger; `Event.of` turns it into an Event.

    It uses the queue's connection and shards, and the queue's scripts write it. They also drop the oldest entries,
    even if a group has not acked them.

    Attributes:
        queue: the name of the queue.
    """

    def __init__(self, queue: QueueContext, executor: Executor) -> None:
        self.queue = queue.name
        self._context = LedgerContext(queue)
        self.name = self._context.name
        self._executor = executor
        self._waits = TopicWaits(self._context, executor)

    async def close(self) -> None:
        """Close the connections that wait for new entries; the queue's own stays open."""
        await self._waits.close()

    async def publish(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InvalidInput: the queue itself writes its ledger."""
        refuse_to_publish(self.queue)

    async def publish_many(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InvalidInput: the queue itself writes its ledger."""
        refuse_to_publish(self.queue)
