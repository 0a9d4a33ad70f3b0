"""Divide a stream into partitions for tasks, and read one of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from delayq.model.positions import order
from delayq.model.record import Entry
from delayq.operations.topics.read import is_for_one_group
from delayq.protocol.operation import Operation, run_one, unwrap
from delayq.protocol.topic_commands import MAX_RECORDS, TopicCommands
from delayq.protocol.topic_keys import TopicKeys
from delayq.topic import Topic

OnTrimmed: TypeAlias = Callable[[str], None]
"""Called with the id from which on entries were trimmed before they were read."""

_COUNTER_BITS = 64


class StreamPartition(InputPartition):
    """Consecutive entries of a shard; the first and the last existed when the stream was divided."""

    def __init__(self, shard: int, stream: str, first: str, last: str) -> None:
        super().__init__(stream)
        self.shard = shard
        self.first = first
        self.last = last

    def pages(self, topic: Topic, trimmed: OnTrimmed) -> Iterator[list[Entry]]:
        """Yield the entries.

        Each page begins with the last entry of the page before. As long as that exists, no entry after it has been
        trimmed, because streams are trimmed from the beginning.
        """
        scripts = TopicCommands(TopicKeys(self.value))
        at, seen, more = self.first, 0, True
        while more:
            page, more = topic.execute(run_one, scripts.range(at, self.last, MAX_RECORDS))
            if not page or page[0][0] != at:
                seen = 0
                first = topic.execute(run_one, scripts.extent()).first
                if not first or number(first) > number(at):
                    trimmed(at)
            yield [entry for entry in page[seen:] if entry[1] is not None and not is_for_one_group(entry[1])]
            if more:
                at, seen = page[-1][0], 1


def split(_: object, scripts: TopicCommands, low: str, high: str, most: int) -> Operation[list[tuple[str, str]]]:
    """Divide the entries between two bounds into at most `most` partitions; none if there are no entries.

    A stream cannot return its middle entry. So the partition that spans the longest time is halved repeatedly. Each
    partition ends at its last entry, so none is spent on times in which nothing was written.

    Returns:
        the first and the last id of each.
    """
    ends = yield [scripts.entries(low, high, 1), scripts.entries(low, high, 1, reverse=True)]
    first, last = map(unwrap, ends)
    if not first or not last:
        return []
    partitions = [_spanning(number(first[0][0]), number(last[0][0]))]
    while len(partitions) < most and partitions[0][0] < 0:
        _, begin, end = heapq.heappop(partitions)
        middle = (begin + end) // 2
        halves = yield [
            scripts.entries(id_of(begin), id_of(middle), 1, reverse=True),
            scripts.entries(id_of(middle + 1), id_of(end), 1),
        ]
        left, right = map(unwrap, halves)
        # Keep an entry that was trimmed meanwhile, so that the reader of the partition notices that it is missing.
        heapq.heappush(partitions, _spanning(begin, number(left[0][0]) if left else begin))
        heapq.heappush(partitions, _spanning(number(right[0][0]) if right else end, end))
    return [(id_of(begin), id_of(end)) for _, begin, end in sorted(partitions, key=lambda part: part[1])]


def number(entry: str) -> int:
    """Return an id as a number; the distances between numbers correspond to those between times."""
    ms, counter = order(entry)
    return (ms << _COUNTER_BITS) + counter


def id_of(number: int) -> str:
    """Return the id for a number."""
    return f"{number >> _COUNTER_BITS}-{number & ((1 << _COUNTER_BITS) - 1)}"


def _spanning(begin: int, end: int) -> tuple[int, int, int]:
    return begin - end, begin, end
