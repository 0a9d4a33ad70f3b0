"""The figures of each queue, and their totals over several queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from delayq.model.configuration import Usage
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.health import Trouble
from delayq.model.queue_stats import QueueStats
from delayq.model.rates import Rates


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The figures of one queue.

    Attributes:
        scheduled, due, running, retrying, dead: messages in each phase.
        sent, acked, failed: messages a second; None if unknown.
        lateness_p50, lateness_p99: seconds; None without deliveries.
        overdue: how many seconds the earliest due message has waited; None if no message is due.
        consumers: how many are alive.
        is_in_trouble: whether anything is wrong with it.
    """

    scheduled: int
    due: int
    running: int
    retrying: int
    dead: int
    sent: float | None
    acked: float | None
    failed: float | None
    lateness_p50: float | None
    lateness_p99: float | None
    overdue: float | None
    consumers: int
    is_in_trouble: bool


class SeenQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, as it was seen.

    Attributes:
        rates: what happened recently; None if unknown.
        consumers: those seen in the last hour.
        usage: the use of its limits, and how late its schedules are.
    """

    stats: QueueStats
    rates: Rates | None = None
    consumers: Sequence[ConsumerInfo] = ()
    troubles: Sequence[Trouble] = ()
    usage: Usage = Usage()

    @property
    def alive(self) -> int:
        """The number of live consumers."""
        return sum(each.is_alive for each in self.consumers)

    @property
    def figures(self) -> QueueFigures:
        """The figures for totals and for sorting."""
        stats, rates = self.stats, self.rates
        return QueueFigures(
            scheduled=stats.scheduled,
            due=stats.due,
            running=stats.running,
            retrying=stats.retrying,
            dead=stats.dead,
            sent=rates.sent if rates else None,
            acked=rates.acked if rates else None,
            failed=rates.failed if rates else None,
            lateness_p50=rates.lateness_p50 if rates else None,
            lateness_p99=rates.lateness_p99 if rates else None,
            overdue=overdue(stats),
            consumers=self.alive,
            is_in_trouble=bool(self.troubles),
        )


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of several queues together.

    Attributes:
        sent, acked, failed: messages a second, over the queues for which that is known.
        overdue: how many seconds the earliest due message of all queues has waited; None if no message is due.
        dead: dead letters.
        consumers: how many are alive; a consumer of several queues counts once for each.
        in_trouble: how many queues are in trouble.
    """

    sent: float = 0.0
    acked: float = 0.0
    failed: float = 0.0
    overdue: float | None = None
    dead: int = 0
    consumers: int = 0
    in_trouble: int = 0


def totals(queues: Iterable[QueueFigures]) -> Totals:
    """Add up the figures of queues."""
    each = list(queues)
    return Totals(
        sent=sum(queue.sent or 0 for queue in each),
        acked=sum(queue.acked or 0 for queue in each),
        failed=sum(queue.failed or 0 for queue in each),
        overdue=max((queue.overdue for queue in each if queue.overdue is not None), default=None),
        dead=sum(queue.dead for queue in each),
        consumers=sum(queue.consumers for queue in each),
        in_trouble=sum(queue.is_in_trouble for queue in each),
    )


def overdue(stats: QueueStats) -> float | None:
    """Return how many seconds the earliest due message of a queue has waited; None if no message is due."""
    if stats.oldest_due_at is None:
        return None
    return max(0.0, (stats.at - stats.oldest_due_at).total_seconds())
