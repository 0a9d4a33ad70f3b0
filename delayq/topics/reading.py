"""Reading a topic without a group: nothing is acked, and nobody is kept from anything."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.calls import Steps, expect
from delayq.operations.inspecting import check_limit
from delayq.topics.core import TopicCore
from delayq.topics.positions import Position, beginning, bound, order
from delayq.topics.record import Record
from delayq.topics.scripts import MAX_RECORDS, Entry, TopicScripts


def records_range(core: TopicCore, start: Position, end: Position, count: int, reverse: bool) -> Steps[list[Record]]:
    """Read up to `count` records between two ids or times, of several shards in the order of their ids."""
    check_limit(count, "count")
    first, last = bound(start, "start"), bound(end, "end")
    shards = yield from core.opened()
    found: list[Record] = []
    for scripts in shards:
        found += yield from _pages(core, scripts, first, last, count, reverse)
    if len(shards) > 1:
        found.sort(key=lambda record: order(record.id), reverse=reverse)
    return found[:count]


def _pages(
    core: TopicCore, scripts: TopicScripts, first: str, last: str, count: int, reverse: bool
) -> Steps[list[Record]]:
    found: list[Record] = []
    while len(found) < count:
        limit = min(MAX_RECORDS, count - len(found))
        (page,) = yield [scripts.entries(first, last, limit, reverse)]
        found += records(core, scripts, expect(page))
        if len(page) < limit:
            break
        if reverse:
            last = f"({found[-1].id}"
        else:
            first = f"({found[-1].id}"
    return found


def records(core: TopicCore, scripts: TopicScripts, entries: Sequence[Entry], deliveries: int = 0) -> list[Record]:
    """Make records of entries, but for those that are gone."""
    shard = core.number(scripts) if len(core.shards) > 1 else 0
    return [
        Record(core.name, record_id, fields, deliveries, shard) for record_id, fields in entries if fields is not None
    ]


def length(core: TopicCore) -> Steps[int]:
    """Count the records."""
    shards = yield from core.opened()
    return sum(map(expect, (yield [scripts.length() for scripts in shards])))


class Tail:
    """A reader's place in a topic: what it has seen, shard by shard.

    Args:
        start: "$" for what comes from now on, "0" for all, an id or a time.
    """

    def __init__(self, core: TopicCore, start: Position) -> None:
        self._core = core
        self._start = beginning(start)
        self._seen: list[str] = []

    @property
    def seen(self) -> list[str]:
        """The id behind which each shard is to be read."""
        return self._seen

    def begin(self) -> Steps[None]:
        """Find the place."""
        shards = yield from self._core.opened()
        self._seen = [self._start] * len(shards)
        if self._start == "$":
            lasts = yield [scripts.entries("-", "+", 1, reverse=True) for scripts in shards]
            self._seen = [expect(last)[0][0] if expect(last) else "0-0" for last in lasts]

    def more(self) -> Steps[list[Record]]:
        """Read what has come since the last time, up to 500 records a shard, in the order of their ids."""
        found: list[Record] = []
        shards = yield from self._core.opened()
        # All is new in what was made since the place was found, with more shards than were known of.
        self._seen += ["0-0" if self._start == "$" else self._start] * (len(shards) - len(self._seen))
        del self._seen[len(shards) :]
        pages = yield [
            scripts.entries(f"({seen}", "+", MAX_RECORDS) for scripts, seen in zip(shards, self._seen, strict=True)
        ]
        for number, (scripts, page) in enumerate(zip(shards, pages, strict=True)):
            entries = expect(page)
            if entries:
                self._seen[number] = entries[-1][0]
            found += records(self._core, scripts, entries)
        if len(shards) > 1:
            found.sort(key=lambda record: order(record.id))
        return found
