"""A snapshot of a queue: its counts, recent rates, consumers and history."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Sequence

from delayq.aio import Queue
from delayq.errors import DelayqError
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.health import WINDOW, lately, troubles
from delayq.model.queue_stats import QueueStats
from delayq.model.rates import Rates, between
from delayq.model.sample import Sample
from delayq.model.totals import SeenQueue
from delayq.web.charts import HOUR, Sparkline, sparkline

OF_LATE = dt.timedelta(seconds=55)  # a sample is up to a minute old, so rates cover one or two minutes
HISTORY_SECONDS = 60.0
CONSUMERS_SECONDS = 5.0


class QueueSnapshot(SeenQueue, frozen=True, kw_only=True):
    """A queue of the dashboard.

    Attributes:
        rates: over the last minute or two; None if unknown.
        spark: the acks of the last hour, as a line and in words.
        error: why it could not be read, or empty.
    """

    name: str
    spark: Sparkline = Sparkline()
    error: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of its troubles, and ``unreadable`` if it could not be read."""
        return (*(each.code for each in self.troubles), *(["unreadable"] if self.error else []))


class QueueWatcher:
    """Looks at a queue repeatedly, and reads each part only as often as it can change.

    It also adds samples to a queue without a consumer.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._history: tuple[Sample, ...] = ()
        self._spark = Sparkline()
        self._history_until = 0.0
        self._consumers: tuple[ConsumerInfo, ...] = ()
        self._consumers_until = 0.0
        self._first: QueueStats | None = None
        self._last: QueueSnapshot | None = None
        self._looked_at = 0.0

    async def look(self, since: float = float("inf")) -> QueueSnapshot:
        """Return a new snapshot, or the last one if its look began after `since`, on the monotonic clock."""
        began = time.monotonic()
        if self._last is None or self._looked_at < since:
            self._last = await self._look()
            self._looked_at = began
        return self._last

    def outdate(self) -> None:
        """Discard the last snapshot."""
        self._last = None

    async def _look(self) -> QueueSnapshot:
        stats = await self._queue.stats()
        usage, *_ = await asyncio.gather(self._queue.usage(), self._read_history(stats.at), self._read_consumers())
        self._first = self._first or stats
        earlier = (self._first, *(each.stats for each in self._history))
        found = troubles(stats, lately(stats, earlier), self._consumers, usage)
        return QueueSnapshot(
            name=self._queue.name,
            stats=stats,
            rates=_just_now(stats, self._history, self._first),
            consumers=self._consumers,
            troubles=tuple(found),
            spark=self._spark,
            usage=usage,
        )

    async def _read_history(self, now: dt.datetime) -> None:
        if time.monotonic() < self._history_until:
            return
        await _keep(self._queue)
        self._history = tuple(await self._queue.samples(now - HOUR))
        self._spark = sparkline(self._history, now)
        self._history_until = time.monotonic() + HISTORY_SECONDS

    async def _read_consumers(self) -> None:
        if time.monotonic() < self._consumers_until:
            return
        self._consumers = tuple(await self._queue.consumers())
        self._consumers_until = time.monotonic() + CONSUMERS_SECONDS


async def glance(queue: Queue) -> QueueSnapshot:
    """Look at a queue once, for its figures and troubles; this draws nothing and remembers no history."""
    await _keep(queue)
    stats, consumers, usage = await asyncio.gather(queue.stats(), queue.consumers(), queue.usage())
    samples = await queue.samples(stats.at - WINDOW)
    found = troubles(stats, lately(stats, [each.stats for each in samples]), consumers, usage)
    return QueueSnapshot(
        name=queue.name,
        stats=stats,
        rates=_just_now(stats, samples),
        consumers=tuple(consumers),
        troubles=tuple(found),
        usage=usage,
    )


async def count(queue: Queue) -> QueueSnapshot:
    """Read only the counts, consumers and use of limits of a queue."""
    stats, consumers = await asyncio.gather(queue.stats(), queue.consumers())
    usage = await queue.usage()
    return QueueSnapshot(name=queue.name, stats=stats, consumers=tuple(consumers), usage=usage)


def _just_now(now: QueueStats, samples: Sequence[Sample], first: QueueStats | None = None) -> Rates | None:
    """Return the rates since the last sample that is old enough, or since the first look."""
    before = [each.stats for each in samples if each.stats.at < now.at - OF_LATE]
    base = before[-1] if before else first
    return between(base, now) if base else None


def unreadable(name: str, error: str) -> QueueSnapshot:
    """Return the snapshot of a queue that could not be read."""
    return QueueSnapshot(name=name, stats=QueueStats(queue=name), error=error)


async def _keep(queue: Queue) -> None:
    with contextlib.suppress(DelayqError):  # a replica, or a user who may only read
        await queue.sample()
