"""What `delayq top` shows of a queue: its counts, and what happened since it last looked."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from delayq.queue import Queue
from delayq.stats import QueueStats, Upcoming

FAILED = ("nacked", "died", "lease_lost")


class Look(msgspec.Struct, frozen=True):
    """A queue at one instant, on the monotonic clock."""

    at: float
    stats: QueueStats
    upcoming: Sequence[Upcoming]


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """A queue now, and since the look before.

    Attributes:
        sent, delivered, acked, failed: a second; None on the first look.
        late_half, late_most: under how many seconds half of the hand-outs since then were late, and 99 % of them;
            None without any.
    """

    stats: QueueStats
    upcoming: Sequence[Upcoming]
    sent: float | None = None
    delivered: float | None = None
    acked: float | None = None
    failed: float | None = None
    late_half: float | None = None
    late_most: float | None = None

    @property
    def queue(self) -> str:
        """Its name."""
        return self.stats.queue


def look(queue: Queue, window: float, bucket: float) -> Look:
    """Look at a queue."""
    stats = queue.stats()
    return Look(time.monotonic(), stats, queue.upcoming(window, bucket))


def pulse(before: Look | None, now: Look) -> Pulse:
    """Return what two looks tell; counters that have gone back are those of a queue that was made anew."""
    if before is None or now.at <= before.at:
        return Pulse(stats=now.stats, upcoming=now.upcoming)
    seconds = now.at - before.at

    def rate(*names: str) -> float:
        more: int = sum(getattr(now.stats, name) - getattr(before.stats, name) for name in names)
        return round(max(0, more) / seconds, 3)

    late = {ms: count - before.stats.lateness.get(ms, 0) for ms, count in now.stats.lateness.items()}
    since = msgspec.structs.replace(now.stats, lateness={ms: count for ms, count in late.items() if count > 0})
    return Pulse(
        stats=now.stats,
        upcoming=now.upcoming,
        sent=rate("sent"),
        delivered=rate("delivered"),
        acked=rate("acked"),
        failed=rate(*FAILED),
        late_half=since.lateness_quantile(0.5),
        late_most=since.lateness_quantile(0.99),
    )
