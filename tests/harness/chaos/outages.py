"""How soon consumers go on after the server's troubles, told from a history."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.harness.chaos.history import Event

INF = float("inf")


class Outage(NamedTuple):
    """A time of trouble with the server, on the machine's monotonic clock, in seconds."""

    began: float
    ended: float


def outages(history: Iterable[Event]) -> list[Outage]:
    """Return the server's troubles, in their order; one that has not ended lasts for ever."""
    found: list[Outage] = []
    for event in history:
        if event.pid == 0 and event.kind == "fault":
            found.append(Outage(event.at, INF))
        elif event.pid == 0 and event.kind == "recovered":
            found[-1] = Outage(found[-1].began, event.at)
    return found


def handed_out_at(delivery: Event) -> float:
    """Return when a delivery was handed out: it may have waited in its consumer for longer than a trouble took."""
    return delivery.at - (delivery.wall_ms - delivery.ms) / 1000


def worst_resume(history: Sequence[Event], consumers: Iterable[int]) -> float:
    """Return the seconds from the end of a trouble until a consumer began to handle what was handed out since.

    The longest of all consumers (their process ids) and troubles, 0 without a trouble, infinite when one has never gone
    on. It counts the time only while the server serves. There must be more due at any time than the others can handle.
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
