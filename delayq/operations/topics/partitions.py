"""Divide a topic or a ledger into parts that several readers read, and read one of them."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from delayq.model.positions import id_of, number_of
from delayq.model.record import Entry, Extent
from delayq.operations.topics.read import is_for_one_group
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import MAX_RECORDS, TopicCommands
from delayq.protocol.topic_keys import TopicKeys

COUNTED_AT_ONCE = 1000


class EntryRange(NamedTuple):
    """Consecutive entries of a stream; the first and the last existed when the stream was divided."""

    stream: str
    first: str
    last: str


class Skipped(NamedTuple):
    """Entries that were counted.

    Attributes:
        passed: how many there are.
        last: the id of the last one, or the end up to which they were counted.
        extent: the shard before they were counted.
    """

    passed: int
    last: str
    extent: Extent


class EntryWalk:
    """Reads the entries of a range.

    Each page begins with the last entry of the page before. As long as that exists, no entry after it has been trimmed,
    because streams are trimmed from the beginning.

    Attributes:
        ended: whether there is nothing left.
        trimmed: the id from which on entries were trimmed before the last page was read; None if none were.
    """

    def __init__(self, entries: EntryRange) -> None:
        self.ended = False
        self.trimmed: str | None = None
        self._scripts = TopicCommands(TopicKeys(entries.stream))
        self._at, self._last = entries.first, entries.last
        self._seen = 0

    def page(self, _: TopicContext) -> Operation[list[Entry]]:
        """Return the next entries."""
        page, more = yield from execute(self._scripts.range(self._at, self._last, MAX_RECORDS))
        self.trimmed = None
        if not page or page[0][0] != self._at:
            self._seen = 0
            first = (yield from execute(self._scripts.extent())).first
            if not first or number_of(first) > number_of(self._at):
                self.trimmed = self._at
        new = [entry for entry in page[self._seen :] if entry[1] is not None and not is_for_one_group(entry[1])]
        if more:
            self._at, self._seen = page[-1][0], 1
        self.ended = not more
        return new


def extents(context: TopicContext) -> Operation[list[Extent]]:
    """Return the extent of each shard."""
    shards = yield from context.opened()
    return list(map(unwrap, (yield [scripts.extent() for scripts in shards])))


def divide(context: TopicContext, shard: int, low: str, high: str, most: int) -> Operation[list[EntryRange]]:
    """Divide the entries between two bounds into at most `most` ranges; none if there are no entries.

    A stream cannot return its middle entry. So the range that spans the longest time is halved repeatedly. Each range
    ends at its last entry, so none is spent on times in which nothing was written.
    """
    scripts = (yield from context.opened())[shard]
    ends = yield [scripts.entries(low, high, 1), scripts.entries(low, high, 1, reverse=True)]
    first, last = map(unwrap, ends)
    if not first or not last:
        return []
    parts = [_spanning(number_of(first[0][0]), number_of(last[0][0]))]
    while len(parts) < most and parts[0][0] < 0:
        _, begin, end = heapq.heappop(parts)
        middle = (begin + end) // 2
        halves = yield [
            scripts.entries(id_of(begin), id_of(middle), 1, reverse=True),
            scripts.entries(id_of(middle + 1), id_of(end), 1),
        ]
        left, right = map(unwrap, halves)
        # Keep an entry that was trimmed meanwhile, so that the reader of the range notices that it is missing.
        heapq.heappush(parts, _spanning(begin, number_of(left[0][0]) if left else begin))
        heapq.heappush(parts, _spanning(number_of(right[0][0]) if right else end, end))
    parts.sort(key=lambda part: part[1])
    return [EntryRange(scripts.keys.stream, id_of(begin), id_of(end)) for _, begin, end in parts]


def _spanning(begin: int, end: int) -> tuple[int, int, int]:
    return begin - end, begin, end


def skip(context: TopicContext, shard: int, after: str, until: str, most: int) -> Operation[Skipped]:
    """Count the entries after an id, up to `until`, but at most `most`."""
    scripts = (yield from context.opened())[shard]
    extent = yield from execute(scripts.extent())
    passed = 0
    while passed < most:
        count, last, _ = yield from execute(scripts.lag(after, min(most - passed, COUNTED_AT_ONCE)))
        passed += count
        if not count or number_of(last.decode()) >= number_of(until):
            return Skipped(passed, until, extent)
        after = last.decode()
    return Skipped(passed, after, extent)
