"""The records that a consumer of a group was handed, and those of them that wait to be handled once more."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable

from delayq.model.interval import Interval
from delayq.model.record import Record


class RecordLeases:
    """What was taken and is not settled; it is renewed so that nobody else takes it over.

    Args:
        seconds: after which others may take over what was not renewed. A third of it is between two renewals, so that
            two may fail.
        clock: a monotonic one, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._held: dict[tuple[int, str], tuple[Record, float]] = {}
        self._waiting: list[tuple[float, int, bool, Record]] = []  # a heap
        self._count = itertools.count()
        self.renewal = Interval(seconds / 3, clock)

    def take(self, records: Iterable[Record], since: float) -> list[Record]:
        """Hold records that were asked for at `since`; return those that were not held already."""
        fresh = []
        for record in records:
            if (record.shard, record.id) not in self._held:
                fresh.append(record)
                self._held[record.shard, record.id] = record, since + self._seconds
        return fresh

    def renew(self, records: Iterable[Record], since: float) -> None:
        """Note that records which are held were renewed at `since`."""
        for record in records:
            if self.has(record):
                self._held[record.shard, record.id] = record, since + self._seconds

    def drop(self, record: Record) -> None:
        """Hold a record no longer."""
        if self.has(record):
            del self._held[record.shard, record.id]

    def has(self, record: Record) -> bool:
        """Whether a record is held."""
        held = self._held.get((record.shard, record.id))
        return held is not None and held[0] is record

    def stands(self, record: Record) -> bool:
        """Whether nobody else can have taken a record over: this process may have been stopped for long."""
        held = self._held.get((record.shard, record.id))
        return held is not None and held[0] is record and held[1] > self._clock()

    def records(self) -> list[Record]:
        """Return all that is held."""
        return [record for record, _ in self._held.values()]

    # -- those that wait ---------------------------------------------------------------------------------------------

    def wait(self, record: Record, seconds: float, begun: bool) -> None:
        """Let a record that is held wait.

        Args:
            begun: whether its last delivery was begun: then the next one counts.
        """
        heapq.heappush(self._waiting, (self._clock() + seconds, next(self._count), begun, record))

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def left(self) -> float | None:
        """Return the seconds until the first one is to be handled, 0 or more; None when none waits."""
        return max(0.0, self._waiting[0][0] - self._clock()) if self._waiting else None

    def ripe(self, most: int) -> list[tuple[Record, bool]]:
        """Take those whose wait is over, up to `most`, each with whether its last delivery was begun."""
        found: list[tuple[Record, bool]] = []
        while self._waiting and len(found) < most and self._waiting[0][0] <= self._clock():
            _, _, begun, record = heapq.heappop(self._waiting)
            if self.has(record):
                found.append((record, begun))
        return found

    def all_waiting(self) -> list[tuple[Record, bool]]:
        """Take all that wait, whenever."""
        waiting, self._waiting = self._waiting, []
        return [(record, begun) for _, _, begun, record in waiting if self.has(record)]
