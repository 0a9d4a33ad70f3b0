"""A schedule, as it is read from Redis."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import msgspec

from delayq.model.occurrence import Missed, Plan
from delayq.model.slots import Slots
from delayq.model.units import timestamp_ms

LATE_MS = 5000  # a consumer takes an occurrence within a second of its slot, even if it missed the bell


class Slot(NamedTuple):
    """A time at which a schedule fires."""

    schedule: str
    at: dt.datetime


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a queue, at one instant.

    Attributes:
        when: its expression; `timezone` is the time zone of that.
        missed: what to do with slots for which no consumer was running.
        grace: seconds that a slot may be late with missed="skip", or None.
        own: whether it is for the handler registered under its name with `Queue.cron`.
        start: no slot is earlier; or None.
        end: no slot is later; or None.
        jitter: seconds; each slot is later than the expression says by less than this.
        paused: whether it fires only on `run_now`.
        finished: whether its last occurrence was handed out, or its end was in the past when it was added.
        next_at: the slot of the next occurrence, in the past if no consumer has taken it yet; None if paused or
            finished.
        next_id: the id of that occurrence, or None.
        timeout: seconds that a run of its handler may take; None for the consumer's timeout.
        task: the name of the task that its messages are for, or None.
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
    task: str | None = None

    def is_late(self, now: dt.datetime) -> bool:
        """Whether the slot of its next occurrence was over 5 seconds before `now`, and no consumer has taken it."""
        return self.next_at is not None and (now - self.next_at).total_seconds() * 1000 > LATE_MS

    @property
    def plan(self) -> Plan:
        """Its plan, as its occurrences carry it."""
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
        """Its slots, without the rules for missed ones."""
        return self.plan.slots(self.queue, self.name)
