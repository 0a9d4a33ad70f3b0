"""Divide a topic or a ledger into parts that several readers read, and read one of them."""

from __future__ import annotations

import heapq

from delayq.model.positions import id_of, number_of
from delayq.model.record import Extent
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.topic_commands import MAX_RECORDS, Page, TopicCommands
from delayq.protocol.topic_keys import TopicKeys

COUNTED_AT_ONCE = 1000


def extents(context: TopicContext) -> Operation[list[Extent]]:
    """Return the extent of each shard."""
    count = len((yield from context.opened()))
    replies = yield from gather(*(context.extent(number) for number in range(count)))
    return list(map(unwrap, replies))


def divide(context: TopicContext, shard: int, low: str, high: str, most: int) -> Operation[list[tuple[str, str, str]]]:
    """Divide the entries of a shard between two bounds into at most `most` ranges; an empty list without entries.

    A stream cannot return its middle entry. So the range that spans the longest time is halved repeatedly. Each range
    ends at its last entry, so none is spent on times in which nothing was written.

    Returns:
        the key of the stream, and the first and the last id, of each.
    """
    scripts, high = (yield from context.opened())[shard], context.reach(high)
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
    return [(scripts.keys.stream, id_of(begin), id_of(end)) for _, begin, end in parts]


def _spanning(begin: int, end: int) -> tuple[int, int, int]:
    return begin - end, begin, end


def skip(context: TopicContext, shard: int, after: str, until: str, most: int) -> Operation[tuple[str, int, Extent]]:
    """Count the records of a shard after an id, up to `until`, but at most `most`, and those of the same entry.

    Returns:
        the id that was reached, the number of records up to it, and the extent before they were counted.
    """
    scripts = (yield from context.opened())[shard]
    extent = yield from context.extent(shard)
    if context.is_packed:
        return (*(yield from _skip_events(context, scripts, after, until, most)), extent)
    passed = 0
    while passed < most:
        count, last, _ = yield from execute(scripts.lag(after, min(most - passed, COUNTED_AT_ONCE)))
        passed += count
        if not count or number_of(last.decode()) >= number_of(until):
            return until, passed, extent
        after = last.decode()
    return after, passed, extent


def _skip_events(
    context: TopicContext, scripts: TopicCommands, after: str, until: str, most: int
) -> Operation[tuple[str, int]]:
    passed, more = 0, True
    while more:
        entries, more = yield from execute(scripts.range(f"({after}", until, MAX_RECORDS))
        for entry in entries:
            passed += len(context.unpacked([entry], f"({after}"))
            after = entry[0]
            if passed >= most and after != until:
                return after, passed
    return until, passed


def page(_: TopicContext, stream: str, first: str, last: str) -> Operation[Page]:
    """Read a page of the entries between two ids; the stream is that of a shard when it was divided."""
    return (yield from execute(TopicCommands(TopicKeys(stream)).range(first, last, MAX_RECORDS)))


def first(_: TopicContext, stream: str) -> Operation[str]:
    """Return the id of the first entry that was not trimmed, or ""."""
    return (yield from execute(TopicCommands(TopicKeys(stream)).extent())).first
