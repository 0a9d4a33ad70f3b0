"""What happened in a queue between two counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from delayq.model.queue_stats import QueueStats, quantile

FAILED = ("nacked", "died", "lease_lost")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a span of time.

    Attributes:
        since: its start.
        until: its end.
        sent, delivered, acked: messages a second.
        failed: deliveries a second that did not end in an ack: nacked, rejected, or lost with their consumers.
        died: messages that became dead letters, in all.
        requeued: dead letters that were requeued, in all.
        lateness: the histogram of the deliveries in the span, as in `QueueStats.lateness`.
        handler_time: the histogram of the handlers that were reported in the span.
    """

    since: dt.datetime
    until: dt.datetime
    sent: float
    delivered: float
    acked: float
    failed: float
    died: int
    requeued: int = 0
    lateness: dict[int, int] = {}
    handler_time: dict[int, int] = {}

    @property
    def seconds(self) -> float:
        """How long the span was."""
        return (self.until - self.since).total_seconds()

    @property
    def lateness_p50(self) -> float | None:
        """The median lateness of the deliveries, in seconds, rounded up to its bucket; None if there were none."""
        return quantile(self.lateness, 0.5)

    @property
    def lateness_p99(self) -> float | None:
        """The 99th percentile of that."""
        return quantile(self.lateness, 0.99)

    @property
    def handler_time_p50(self) -> float | None:
        """The median run time of the handlers, in seconds, rounded up to its bucket; None if there were none."""
        return quantile(self.handler_time, 0.5)

    @property
    def handler_time_p99(self) -> float | None:
        """The 99th percentile of that."""
        return quantile(self.handler_time, 0.99)


def between(before: QueueStats, now: QueueStats) -> Rates | None:
    """Return what happened between two counts; None if the second one is not later.

    Counters that went down belong to a queue that was created again, so nothing is known.
    """
    seconds = (now.at - before.at).total_seconds()
    if seconds <= 0:
        return None

    def more(*names: str) -> int:
        change: int = sum(getattr(now, name) - getattr(before, name) for name in names)
        return max(0, change)

    return Rates(
        since=before.at,
        until=now.at,
        sent=round(more("sent") / seconds, 3),
        delivered=round(more("delivered") / seconds, 3),
        acked=round(more("acked") / seconds, 3),
        failed=round(more(*FAILED) / seconds, 3),
        died=more("died"),
        requeued=more("requeued"),
        lateness=_added(before.lateness, now.lateness),
        handler_time=_added(before.handler_time, now.handler_time),
    )


def _added(before: Mapping[int, int], now: Mapping[int, int]) -> dict[int, int]:
    added = {upper: count - before.get(upper, 0) for upper, count in now.items()}
    return {upper: count for upper, count in added.items() if count > 0}
