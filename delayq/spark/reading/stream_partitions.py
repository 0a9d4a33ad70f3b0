"""The part of a stream that a task reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from delayq.model.positions import order
from delayq.model.record import Entry, is_for_one_group
from delayq.operations.topics import partitions
from delayq.topic import Topic

OnTrimmed: TypeAlias = Callable[[str], None]
"""Called with the id from which on entries were trimmed before they were read."""


class StreamPartition(InputPartition):
    """Consecutive entries of a shard; the first and the last existed when the stream was divided.

    Args:
        low, high: bounds of what is read of the stream: of the first and the last entry, maybe not all events.
    """

    def __init__(self, shard: int, stream: str, first: str, last: str, low: str, high: str) -> None:
        super().__init__(stream)
        self.low = low
        self.high = high
        self.shard = shard
        self.first = first
        self.last = last

    def pages(self, topic: Topic, trimmed: OnTrimmed) -> Iterator[list[Entry]]:
        """Yield the entries.

        Each page begins with the last entry of the page before. As long as that exists, no entry after it has been
        trimmed, because streams are trimmed from the beginning.
        """
        at, seen, more = self.first, 0, True
        while more:
            page, more = topic.execute(partitions.page, self.value, at, self.last)
            if not page or page[0][0] != at:
                seen = 0
                first = topic.execute(partitions.first, self.value)
                if not first or order(first) > order(at):
                    trimmed(at)
            yield [entry for entry in page[seen:] if entry[1] is not None and not is_for_one_group(entry[1])]
            if more:
                at, seen = page[-1][0], 1
