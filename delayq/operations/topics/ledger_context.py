"""The ledger of a queue as a topic sees it: its shards are those of the queue, whose scripts write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from delayq.errors import InvalidInput
from delayq.model import packed_events
from delayq.model.record import Entry, Extent
from delayq.operations.queue_context import QueueContext
from delayq.operations.topics.topic_context import TopicContext, TopicSettings
from delayq.protocol.operation import Operation, execute
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

    is_packed = True

    def extent(self, number: int) -> Operation[Extent]:
        """Return the extent of a shard, whose length is that in events."""
        at = ""
        while True:
            found = yield from execute(self._queue.shards[number].ledger_extent(at))
            if not found.next:
                return found.extent
            at = found.next

    def unpacked(self, entries: Sequence[Entry], low: str = "-", high: str = "+", reverse: bool = False) -> list[Entry]:
        """Return the events in entries that were read between two bounds."""
        return packed_events.events(entries, low, high, reverse)

    def reach(self, high: str) -> str:
        """Return the bound up to which entries may contain events up to `high`."""
        return packed_events.reach(high)

    def _shards(self) -> list[TopicKeys]:
        found = [TopicKeys(scripts.keys.events) for scripts in self._queue.shards]
        for keys, scripts in zip(found, self._queue.shards, strict=True):
            keys.meta = scripts.keys.meta  # where the queue notes the mark of its ledger
        return found


def refuse_to_publish(queue: str) -> NoReturn:
    """Raise InvalidInput: only the queue writes its ledger."""
    raise InvalidInput(f"only queue {queue} itself writes its ledger: publish to a Topic of your own")
