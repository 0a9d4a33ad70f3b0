"""The records that a consumer of a group holds, and those of them that wait to be retried."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from delayq.model.lease_clock import lease_now
from delayq.model.record import Record


@dataclass(slots=True)
class _Held:
    record: Record
    until: float  # on the monotonic clock


class RecordLeases:
    """The records that were taken and are not settled; they are renewed so that nobody else takes them over.

    Args:
        seconds: after which others may take over a record that was not renewed.
        clock: in seconds.

    Attributes:
        heartbeat_seconds: between two renewals; two may fail.
        settling: the records that are being settled, by their `id()`: a renewal may find them settled already.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = lease_now) -> None:
        self._seconds = seconds
        self._clock = clock
        self._held: dict[tuple[int, str], _Held] = {}
        self._waiting: list[tuple[float, int, bool, Record]] = []  # a heap
        self._count = itertools.count()
        self.heartbeat_seconds = seconds / 3
        self.settling: frozenset[int] = frozenset()

    def take(self, records: Iterable[Record], since: float) -> list[Record]:
        """Hold records that were requested at `since`; return those that were not held already."""
        fresh = []
        for record in records:
            if (record.shard, record.id) not in self._held:
                fresh.append(record)
                self._held[record.shard, record.id] = _Held(record, since + self._seconds)
        return fresh

    def replaced_by(self, records: Iterable[Record]) -> list[Record]:
        """Return the held records of an earlier group whose ids others of `records` have."""
        found = [(self._held.get((record.shard, record.id)), record) for record in records]
        return [held.record for held, record in found if held and held.record.group_mark != record.group_mark]

    def renew(self, records: Iterable[Record], since: float) -> None:
        """Note that held records were renewed at `since`."""
        for record in records:
            held = self._held.get((record.shard, record.id))
            if held is not None and held.record is record:
                held.until = since + self._seconds

    def drop(self, record: Record) -> None:
        """Stop holding a record."""
        if self.has(record):
            self._held.pop((record.shard, record.id), None)

    def has(self, record: Record) -> bool:
        """Whether a record is held."""
        held = self._held.get((record.shard, record.id))
        return held is not None and held.record is record

    def stands(self, record: Record) -> bool:
        """Whether nobody else can have taken a record over while this process was suspended."""
        held = self._held.get((record.shard, record.id))
        return held is not None and held.record is record and held.until > self._clock()

    def records(self) -> list[Record]:
        """Return all held records."""
        return [held.record for held in tuple(self._held.values())]

    def to_renew(self) -> list[Record]:
        """Return the held records; of those that are being settled, those with less than half of their time left."""
        soon = self._clock() + self._seconds / 2
        held = tuple(self._held.values())
        return [each.record for each in held if id(each.record) not in self.settling or each.until < soon]

    # -- those that wait ---------------------------------------------------------------------------------------------

    def wait(self, record: Record, seconds: float, begun: bool) -> None:
        """Let a held record wait, without its fields, which are read again when it is due.

        Args:
            begun: whether its last delivery was begun, so that the next one counts.
        """
        if not self.has(record):
            return
        # Without the fields, since many large records may wait.
        bare = Record(record.topic, record.id, (), record.deliveries, record.shard, record.group_mark)
        self._held[record.shard, record.id].record = bare
        heapq.heappush(self._waiting, (self._clock() + seconds, next(self._count), begun, bare))

    @property
    def waiting(self) -> int:
        """The number of waiting records."""
        return len(self._waiting)

    def left(self) -> float | None:
        """Return the seconds until the first waiting record is due, 0 or more; None if none waits."""
        return max(0.0, self._waiting[0][0] - self._clock()) if self._waiting else None

    def due(self, most: int) -> list[tuple[Record, bool]]:
        """Take up to `most` records whose wait is over, each with whether its last delivery was begun."""
        found: list[tuple[Record, bool]] = []
        while self._waiting and len(found) < most and self._waiting[0][0] <= self._clock():
            _, _, begun, record = heapq.heappop(self._waiting)
            if self.has(record):
                found.append((record, begun))
        return found

    def all_waiting(self) -> list[tuple[Record, bool]]:
        """Return all waiting records, each with whether its last delivery counts."""
        return [(record, begun) for _, _, begun, record in self._waiting if self.has(record)]
