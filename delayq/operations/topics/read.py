"""Read a topic without a group: nothing is acked, and no other reader is affected."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from delayq.model.positions import Place, Position, beginning, bound, order
from delayq.model.record import Entry, Record, is_for_one_group
from delayq.model.units import from_ms
from delayq.model.validation import check_limit
from delayq.operations.topics.partitions import extents
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import ANY_MARK, MAX_RECORDS, TopicCommands

T = TypeVar("T")


def records_range(
    context: TopicContext, start: Position, end: Position, count: int, reverse: bool
) -> Operation[list[Record]]:
    """Read up to `count` records between two ids or times, with those of several shards ordered by id."""
    check_limit(count, "count")
    first, last = bound(start, "start"), bound(end, "end")
    shards = yield from context.opened()
    found: list[Record] = []

    def read(scripts: TopicCommands, entries: list[Entry]) -> list[Record]:
        return records(context, scripts, context.unpacked(entries, first, last, reverse))

    for scripts in shards:
        found += yield from pages(scripts, first, context.reach(last), count, partial(read, scripts), reverse)
    if len(shards) > 1:
        found.sort(key=lambda record: order(record.id), reverse=reverse)
    return found[:count]


def records_before(context: TopicContext, before: Place | None, count: int) -> Operation[list[Record]]:
    """Read up to `count` records, newest first, before a place or from the end."""
    if before is None:
        return (yield from records_range(context, "-", "+", count, True))
    found = yield from records_range(context, "-", before.id, count + before.shard + 1, True)
    at = order(before.id)  # records of several shards with the same id are in the order of their shards
    older = [each for each in found if order(each.id) < at or (order(each.id) == at and each.shard > before.shard)]
    return older[:count]


def pages(
    scripts: TopicCommands,
    first: str,
    last: str,
    count: int,
    read: Callable[[list[Entry]], list[T]],
    reverse: bool = False,
    stream: str = "",
) -> Operation[list[T]]:
    """Read up to `count` values that `read` makes from the entries between two ids of a shard, or of `stream`."""
    found: list[T] = []
    more = True
    while more and len(found) < count:
        limit = min(MAX_RECORDS, count - len(found))
        entries, more = yield from execute(scripts.range(first, last, limit, reverse, stream))
        found += read(entries)
        if entries and reverse:
            last = f"({entries[-1][0]}"
        elif entries:
            first = f"({entries[-1][0]}"
    return found


def records(
    context: TopicContext,
    scripts: TopicCommands,
    entries: Sequence[Entry],
    deliveries: int = 0,
    mark: str = ANY_MARK,
) -> list[Record]:
    """Make records from entries, without those that are gone."""
    shard = context.number(scripts) if len(context.shards) > 1 else 0
    return [
        Record(context.name, record_id, fields, deliveries, shard, mark)
        for record_id, fields in entries
        if fields is not None and not (deliveries == 0 and is_for_one_group(fields))
    ]


def length(context: TopicContext) -> Operation[int]:
    """Count the records."""
    return sum(extent.length for extent in (yield from extents(context)))


def server_time(context: TopicContext) -> Operation[dt.datetime]:
    """Return the server's time."""
    return from_ms((yield from execute(context.shards[0].time())))


class Tail:
    """A reader's place in each shard of a topic.

    Args:
        start: "$" for new records, "0" for all, an id or a time.
    """

    def __init__(self, context: TopicContext, start: Position) -> None:
        self._context = context
        self._start = beginning(start)
        self._seen: list[str] = []

    @property
    def seen(self) -> list[str]:
        """The id after which to read each shard."""
        return self._seen

    def begin(self) -> Operation[None]:
        """Find the place."""
        shards = yield from self._context.opened()
        self._seen = [self._start] * len(shards)
        if self._start == "$":
            lasts = yield [scripts.entries("-", "+", 1, reverse=True) for scripts in shards]
            self._seen = [unwrap(last)[0][0] if unwrap(last) else "0-0" for last in lasts]

    def more(self) -> Operation[list[Record]]:
        """Read new records since the last call, a page of each shard, ordered by id."""
        shards = yield from self._context.opened()
        # If the topic was created again with more shards, all records in the additional ones are new.
        self._seen += ["0-0" if self._start == "$" else self._start] * (len(shards) - len(self._seen))
        del self._seen[len(shards) :]
        found: list[Record] = []
        is_over = False
        while not (found or is_over):  # a page may contain only records for one group
            limit = max(1, MAX_RECORDS // len(shards))
            replies = yield [
                scripts.range(f"({seen}", "+", limit) for scripts, seen in zip(shards, self._seen, strict=True)
            ]
            is_over = True
            for number, (scripts, reply) in enumerate(zip(shards, replies, strict=True)):
                entries, _ = unwrap(reply)
                unpacked = self._context.unpacked(entries, f"({self._seen[number]}")
                if entries:
                    self._seen[number], is_over = entries[-1][0], False
                found += records(self._context, scripts, unpacked)
        if len(shards) > 1:
            found.sort(key=lambda record: order(record.id))
        return found
