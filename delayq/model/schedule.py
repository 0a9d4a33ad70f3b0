"""What is known of a schedule."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import msgspec

from delayq.model.occurrence import Missed, Plan
from delayq.model.slots import Slots
from delayq.model.units import timestamp_ms


class Slot(NamedTuple):
    """A time at which a schedule fires."""

    schedule: str
    at: dt.datetime


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a queue, at one instant.

    Attributes:
        when: its expression, and `timezone` the one in which that is meant.
        missed: what becomes of slots that no consumer was there for.
        grace: seconds that a slot may be late with missed="skip", or None.
        own: whether it is for the handler that was registered under its name with `Queue.cron`.
        start: no slot is earlier; or None.
        end: no slot is later; or None.
        jitter: seconds; each slot is later than the expression says by less than this.
        paused: whether it fires only when `run_now` asks it to.
        finished: whether its last occurrence was handed out, or its end was past when it was added.
        next_at: the slot of the occurrence on its way, which is in the past when no consumer was there; None when
            paused or finished.
        next_id: the id of that occurrence, or None.
        timeout: seconds that a run of its handler may take; None where the consumer's timeout counts.
    """

    name: str
    queue: str
    when: str
    timezone: str
    missed: Missed
    grace: float | None
    own: bool
    start: dt.datetime | None
    end: dt.datetime | None
    jitter: float
    paused: bool
    finished: bool
    next_at: dt.datetime | None
    next_id: str | None
    payload: Any
    headers: dict[str, Any]
    max_retries: int
    timeout: float | None

    @property
    def plan(self) -> Plan:
        """When it fires, as its occurrences carry it."""
        return Plan(
            self.when,
            self.timezone,
            self.missed,
            None if self.grace is None else round(self.grace * 1000),
            self.own,
            None if self.start is None else timestamp_ms(self.start),
            None if self.end is None else timestamp_ms(self.end),
            round(self.jitter * 1000),
        )

    @property
    def slots(self) -> Slots:
        """When it fires, without what was missed."""
        return self.plan.slots(self.queue, self.name)
