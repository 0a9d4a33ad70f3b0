"""The ledger of a queue as a topic sees it: its shards are those of the queue, whose scripts write it."""

from __future__ import annotations

from typing import NoReturn

from delayq.errors import InvalidInput
from delayq.operations.queue_context import QueueContext
from delayq.operations.topics.topic_context import TopicContext, TopicSettings
from delayq.protocol.operation import Operation
from delayq.protocol.topic_commands import TopicCommands
from delayq.protocol.topic_keys import TopicKeys


class LedgerContext(TopicContext):
    """The ledger of one queue.

    Args:
        queue: the queue, whose settings are used to open it.
    """

    def __init__(self, queue: QueueContext) -> None:
        self._queue = queue
        settings = TopicSettings(dead_retention=queue.settings.dead_retention)
        super().__init__(f"{queue.name}:events", lambda shard: self._shards()[shard], None, settings)

    def opened(self, create: bool = False) -> Operation[list[TopicCommands]]:
        """Return the shards, after the queue has checked its own."""
        yield from self._queue.opened(create)
        if len(self.shards) != len(self._queue.shards):
            self._use_shards(len(self._queue.shards))
        return self.shards

    def reopened(self) -> Operation[bool]:
        """Return False: the queue records itself."""
        yield from self.opened()
        return False

    def _shards(self) -> list[TopicKeys]:
        return [TopicKeys(scripts.keys.events) for scripts in self._queue.shards]


def refuse_to_publish(queue: str) -> NoReturn:
    """Raise InvalidInput: only the queue writes its ledger."""
    raise InvalidInput(f"only queue {queue} itself writes its ledger: publish to a Topic of your own")
