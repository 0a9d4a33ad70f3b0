"""The records that a consumer of a group may hold without knowing it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from delayq.errors import ServerNotReady
from delayq.model.record import Record
from delayq.operations.topics import group_read
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation


class OwnRecords:
    """On which shards a consumer must list its records: those of an earlier run, or from a reply that never came.

    An unavailable shard does not stop the others: it is tried again after a pause.

    Args:
        group, consumer: the group, and the name of the consumer in it.

    Attributes:
        unlisted: the shards, each with the id after which the next page begins.
        is_new: whether the consumer has not listed all of them since it began.
    """

    def __init__(self, context: TopicContext, group: str, consumer: str) -> None:
        self.unlisted: dict[int, str] = {}
        self.is_new = True
        self._context = context
        self._me = (context, group, consumer)
        self._try_at = 0.0  # when to try unavailable shards again; 0 if none of them is

    def list_all(self) -> None:
        """List the records of all shards again, before anything else is taken."""
        self.unlisted, self._try_at = dict.fromkeys(range(len(self._context.shards)), ""), 0.0

    def missed(self, shards: Iterable[int]) -> None:
        """List the records of some shards that were unavailable, after a pause."""
        self.unlisted |= dict.fromkeys(shards, "")
        self._try_at = time.monotonic() + self._context.outages.pause()

    @property
    def are_due(self) -> bool:
        """Whether to list a page now."""
        return bool(self.unlisted) and time.monotonic() >= self._try_at

    @property
    def come_first(self) -> bool:
        """Whether they must be listed before anything else is taken."""
        return len(self.unlisted) >= len(self._context.shards) or (bool(self.unlisted) and not self._try_at)

    def left(self) -> float:
        """Return the seconds until unavailable shards are tried again; infinite if there are none."""
        return max(0.0, self._try_at - time.monotonic()) if self.unlisted and self._try_at else math.inf

    def page(self) -> Operation[tuple[list[Record], dict[int, str]]]:
        """Return a page of records, and what is left to list: pass it to `listed` once the records are held.

        Raises:
            ServerNotReady: no shard is available.
        """
        before, self._try_at = self.unlisted, 0.0
        own, unlisted = yield from group_read.own_page(*self._me, before)
        if any(self._is_away(number) for number in unlisted):
            if len(unlisted) == len(self._context.shards):
                raise ServerNotReady(f"no shard of topic {self._context.name} is available; try again later")
            self._try_at = time.monotonic() + self._context.outages.pause()
        return own, unlisted

    def listed(self, unlisted: dict[int, str]) -> None:
        """Note what is left to list."""
        self.unlisted, self.is_new = unlisted, self.is_new and bool(unlisted)

    def _is_away(self, number: int) -> bool:
        shards = self._context.shards
        return number < len(shards) and self._context.outages.has(shards[number].keys.meta)
