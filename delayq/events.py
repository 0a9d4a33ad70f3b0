"""The ledger of a queue as a topic: read it, let groups follow it, trim it."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from delayq.connection import Connection
from delayq.operations.core import Core
from delayq.topic import Topic
from delayq.topics.ledger import LedgerCore, refuse_to_publish


class Ledger(Topic):
    """`Queue.events`: a record for each entry of the ledger, of which `Event.of` makes an Event.

    It has the queue's connection and shards, and the queue's scripts write it. They also drop the oldest entries: those
    that a group has not acked, too.

    Attributes:
        queue: the name of the queue.
    """

    def __init__(self, queue: Core, connection: Connection) -> None:
        self.queue = queue.name
        self.core = LedgerCore(queue)
        self.name = self.core.name
        self.connection = connection
        self._listeners = threading.local()

    def close(self) -> None:
        """Close the connections that wait for what comes; the queue's own stays open."""
        listener = self._listeners.__dict__.pop("listener", None)
        if listener is not None:
            listener.close()

    def publish(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InvalidInput: the queue itself writes its ledger."""
        refuse_to_publish(self.queue)

    def publish_many(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InvalidInput: the queue itself writes its ledger."""
        refuse_to_publish(self.queue)
