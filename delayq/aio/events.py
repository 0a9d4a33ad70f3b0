"""The ledger of a queue of the async face as a topic."""

from __future__ import annotations

from typing import Any, NoReturn

from delayq.aio.connection import Connection
from delayq.aio.topic import Topic
from delayq.operations.core import Core
from delayq.topics.ledger import LedgerCore, refuse_to_publish


class Ledger(Topic):
    """`Queue.events` of the async face: `delayq.events.Ledger`, awaited.

    Attributes:
        queue: the name of the queue.
    """

    def __init__(self, queue: Core, connection: Connection) -> None:
        self.queue = queue.name
        self.core = LedgerCore(queue)
        self.name = self.core.name
        self.connection = connection
        self._listeners = []

    async def close(self) -> None:
        """Close the connections that wait for what comes; the queue's own stays open."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.close()

    async def publish(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InvalidInput: the queue itself writes its ledger."""
        refuse_to_publish(self.queue)

    async def publish_many(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InvalidInput: the queue itself writes its ledger."""
        refuse_to_publish(self.queue)
