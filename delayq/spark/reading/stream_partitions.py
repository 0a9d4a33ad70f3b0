"""The part of a stream that a task reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from delayq.model.record import Entry
from delayq.operations.topics.partitions import EntryRange, EntryWalk
from delayq.topic import Topic

OnTrimmed: TypeAlias = Callable[[str], None]
"""Called with the id from which on entries were trimmed before they were read."""


class StreamPartition(InputPartition):
    """Consecutive entries of a shard; the first and the last existed when the stream was divided."""

    def __init__(self, shard: int, stream: str, first: str, last: str) -> None:
        super().__init__(stream)
        self.shard = shard
        self.first = first
        self.last = last

    def pages(self, topic: Topic, trimmed: OnTrimmed) -> Iterator[list[Entry]]:
        """Yield the entries."""
        walk = EntryWalk(EntryRange(self.value, self.first, self.last))
        while not walk.ended:
            page = topic.execute(walk.page)
            if walk.trimmed is not None:
                trimmed(walk.trimmed)
            yield page
