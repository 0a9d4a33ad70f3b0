"""The faults of a history, and what they explain: repeated deliveries, unseen attempts, delays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.harness.chaos.history import Event

INF = float("inf")
UNSETTLED_SECONDS = 1.0  # generous bound for how long a consumer's outcome takes to reach the server

ENDS = {"finished", "failed", "buried"}


class Hit(NamedTuple):
    """A fault that hit a message in delivery: its time, and the number of the visible delivery it hit.

    A delivery that was not seen, because its handler had not started, counts as half.
    """

    at: float
    delivery: float


class Troubles:
    """The faults of a history: of processes, and of the server.

    Args:
        events: of the kinds "fault" and "recovered".
        lease: the consumers' lease in seconds, or None if unknown. With a lease, an unseen attempt is blamed on a fault
            within the time its lease may have had left; without one, on any fault before.
        unsettled: how many seconds a consumer's outcome may take to reach the server.
    """

    def __init__(
        self, events: Iterable[Event], lease: float | None = None, unsettled: float = UNSETTLED_SECONDS
    ) -> None:
        self._lease = lease
        self._unsettled = unsettled
        self._faults: dict[int, list[tuple[float, float]]] = defaultdict(list)  # by pid: start, end
        for event in events:
            spans = self._faults[event.pid]
            if event.kind == "fault":
                spans.append((event.at, INF))
            elif spans:
                spans[-1] = (spans[-1][0], event.at)

    def explain(self, earlier: Event, end: Event | None, later: Event) -> bool:
        """Whether a fault of its process or the server kept the earlier delivery from being settled."""
        for began, ended in self._of(earlier.pid):
            unsettled = end is None or end.at >= began - self._unsettled
            if began <= moment(later) and unsettled and earlier.at <= ended + self._unsettled:
                return True
        return False

    def explain_unseen(self, later: Event) -> bool:
        """Whether a fault kept the handler from starting the attempt before this delivery or death."""
        return bool(self._unseen(later))

    def explain_order(self, earlier: Event, later: Event) -> bool:
        """Whether a delivery may have an attempt number that is not above an earlier one.

        The server may have forgotten attempts, even of messages whose handlers started after its return. Or the process
        was stopped between its last check of the lease and the line in its journal.
        """
        stood_still = any(began <= later.at <= ended + self._unsettled for began, ended in self._faults[later.pid])
        forgotten = any(began <= later.at and earlier.at <= ended + self._unsettled for began, ended in self._faults[0])
        return forgotten or (stood_still and later.attempt < earlier.attempt)

    def of_server(self, since: float) -> bool:
        """Whether the server was in trouble at any time from `since` on."""
        return any(ended >= since for _, ended in self._faults[0])

    def of_server_between(self, since: float, until: float) -> bool:
        """Whether the server was in trouble during a span, or just before it."""
        return any(began <= until and ended >= since - self._unsettled for began, ended in self._faults[0])

    def recovery(self, events: Sequence[Event]) -> float:
        """Return the longest time in seconds from a fault until a message it hit was handled or buried; 0 for none.

        A message is hit while its handler runs, or after it was handed out and before its handler started, which shows
        as a missing attempt. If the next delivery is hit too, the time until then counts; after that, the recovery
        belongs to the second hit.
        """
        hits = self._hits(events)
        ends = [moment(event) for event in events if event.kind in ENDS]
        worst = 0.0
        for hit in hits:
            over = [end for end in ends if end > hit.at]
            over += [next_hit.at for next_hit in hits if next_hit.delivery > hit.delivery and next_hit.at > hit.at]
            worst = max(worst, min(over, default=hit.at) - hit.at)
        return worst

    def _hits(self, events: Sequence[Event]) -> list[Hit]:
        hits: list[Hit] = []
        seen, number = 0, 0
        for event in events:
            if event.kind == "buried" and event.attempt > seen:
                hits += [Hit(at, number + 0.5) for at in self._worst_unseen(event)]
            if event.kind != "delivered":
                continue
            number += 1
            if event.attempt > seen + 1:
                hits += [Hit(at, number - 0.5) for at in self._worst_unseen(event)]
            end = min((moment(each) for each in events if _ends(each, event)), default=INF)
            hits += [Hit(began, number) for began, _ in self._of(event.pid) if event.at <= began <= end]
            seen = event.attempt
        return hits

    def _worst_unseen(self, later: Event) -> list[float]:
        """Return the fault that ended an unseen attempt: the earliest of several possible ones."""
        suspects = self._unseen(later)
        if not suspects:
            return []
        if self._lease is None:
            return [max(suspects)]
        since = lease_end(later) - self._lease
        return [min((began for began in suspects if began >= since), default=max(suspects))]

    def _unseen(self, later: Event) -> list[float]:
        """Return the start times of the faults that may have ended the unseen delivery before this one."""
        every = [(pid, *span) for pid, spans in self._faults.items() for span in spans]
        if self._lease is None or not later.due_ms:
            return [began for _, began, _ in every if began <= moment(later)]
        until = lease_end(later)
        since = until - self._lease - self._unsettled
        # A dead process claims nothing more, but messages handed out during server trouble may not have arrived.
        return [
            max(began, since) for pid, began, ended in every if began <= until and since <= (began if pid else ended)
        ]

    def _of(self, pid: int) -> list[tuple[float, float]]:
        """Return the faults that affect a process: its own and the server's."""
        return self._faults[pid] + self._faults[0]


def moment(event: Event) -> float:
    """Return when an event happened: for a death, when the message died, not when that was found."""
    return event.at - max(0.0, event.wall_ms - event.ms) / 1000 if event.kind == "buried" and event.ms else event.at


def lease_end(delivery: Event) -> float:
    """Return when the lost lease of the delivery before this one ended, on the monotonic clock."""
    return delivery.at - max(0.0, delivery.wall_ms - delivery.due_ms) / 1000


def _ends(event: Event, delivery: Event) -> bool:
    own = (event.pid, event.attempt) == (delivery.pid, delivery.attempt)
    return event.kind in ENDS and moment(event) >= delivery.at and (own or event.kind == "buried")
