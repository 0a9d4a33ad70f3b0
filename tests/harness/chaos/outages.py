"""How soon consumers resume after the server's troubles, from a history."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.harness.chaos.history import Event

INF = float("inf")


class Outage(NamedTuple):
    """A period of server trouble, in seconds on the machine's monotonic clock."""

    began: float
    ended: float


def outages(history: Iterable[Event]) -> list[Outage]:
    """Return the server's troubles in order; one that has not ended lasts forever."""
    found: list[Outage] = []
    for event in history:
        if event.pid == 0 and event.kind == "fault":
            found.append(Outage(event.at, INF))
        elif event.pid == 0 and event.kind == "recovered":
            found[-1] = Outage(found[-1].began, event.at)
    return found


def handed_out_at(delivery: Event) -> float:
    """Return when a delivery was handed out; it may have waited in its consumer for longer than a trouble lasted."""
    return delivery.at - (delivery.wall_ms - delivery.ms) / 1000


def worst_resume(history: Sequence[Event], consumers: Iterable[int]) -> float:
    """Return the seconds from the end of a trouble until a consumer starts a message handed out since.

    This is the longest over all consumers (by process id) and troubles: 0 without a trouble, infinite if one never
    resumed. It counts time only while the server serves. More must be due at any time than the others can handle.
    """
    troubles = outages(history)
    worst = 0.0
    for pid in consumers:
        deliveries = (event for event in history if event.kind == "delivered" and event.pid == pid)
        begun = sorted((handed_out_at(event), event.at) for event in deliveries)
        for trouble in troubles:
            place = bisect(begun, (trouble.ended, 0.0))
            if place == len(begun):
                return INF
            end = begun[place][1]
            away = sum(min(each.ended, end) - each.began for each in troubles if trouble.ended <= each.began < end)
            worst = max(worst, end - trouble.ended - away)
    return worst
