"""Purge the messages of a state in steps."""

from __future__ import annotations

import math

from delayq.model.placement import State
from delayq.operations.bulk.search import count
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_IDS


class Purge:
    """A purge in steps, so that the caller can show progress and stop.

    Args:
        most: the most messages to purge, the earliest of each shard first.
        up_to: the highest score to purge, ms.

    Attributes:
        count: how many it has purged.
        done: whether there is nothing left to do.
    """

    def __init__(self, state: State, most: int, up_to: int) -> None:
        self.count = 0
        self.done = most <= 0
        self._state: State = state
        self._most = most
        self._up_to = up_to
        self._shard = 0

    def step(self, context: QueueContext) -> Operation[int]:
        """Purge a page; return the total so far."""
        shards = yield from context.opened()
        purge = shards[self._shard].purge(self._state, self._up_to, min(self._most - self.count, MAX_IDS))
        gone = yield from execute(purge)
        self.count += gone
        self._shard += not gone
        self.done = self.count >= self._most or self._shard >= len(shards)
        return self.count


def extent(context: QueueContext, state: State) -> Operation[tuple[int, int | None]]:
    """Return how many messages a state holds, and the highest score, ms; None if it is empty."""
    total = yield from count(context, [state])
    lasts = map(unwrap, (yield [scripts.last(state) for scripts in context.shards]))
    return total, max((math.ceil(float(score)) for rows in lasts for _, score in rows), default=None)
