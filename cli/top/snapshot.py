"""What `delayq top` shows of a queue: its counts, and what happened since the last reading."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delayq.model.configuration import Usage
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.health import WINDOW, lately, troubles
from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.rates import between
from delayq.model.record import GroupInfo
from delayq.model.sample import Sample
from delayq.model.totals import SeenQueue, overdue
from delayq.queue import Queue


class Snapshot(msgspec.Struct, frozen=True):
    """A queue at one instant."""

    stats: QueueStats
    upcoming: Sequence[Upcoming]
    consumers: Sequence[ConsumerInfo] = ()
    samples: Sequence[Sample] = ()
    usage: Usage = Usage()


class QueueRow(SeenQueue, frozen=True, kw_only=True):
    """A queue now, and what happened since the previous reading: without one, its rates are unknown."""

    upcoming: Sequence[Upcoming]

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.stats.queue

    @property
    def oldest_due(self) -> float | None:
        """For how many seconds the earliest due message has been due; None without one."""
        return overdue(self.stats)


class TopicRow(msgspec.Struct, frozen=True):
    """A topic now."""

    name: str
    records: int
    groups: Sequence[GroupInfo]

    @property
    def left(self) -> int:
        """How many deliveries its groups have left, including dead letters."""
        return sum(each.lag + each.unacked + each.dead for each in self.groups)


def look(queue: Queue, window: float, bucket: float) -> Snapshot:
    """Read a queue."""
    stats = queue.stats()
    samples, usage = queue.samples(stats.at - WINDOW), queue.usage()
    return Snapshot(stats, queue.upcoming(window, bucket), queue.consumers(), samples, usage)


def pulse(before: Snapshot | None, now: Snapshot, first: Snapshot | None) -> QueueRow:
    """Return the row of a queue: rates since the previous reading, troubles of the last minutes."""
    rates = None if before is None else between(before.stats, now.stats)
    earlier = [*(each.stats for each in now.samples), *([first.stats] if first else [])]
    return QueueRow(
        stats=now.stats,
        upcoming=now.upcoming,
        consumers=now.consumers,
        rates=rates,
        troubles=troubles(now.stats, lately(now.stats, earlier), now.consumers, now.usage),
        usage=now.usage,
    )
