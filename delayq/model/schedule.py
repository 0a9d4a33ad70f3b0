"""What is known of a schedule."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import msgspec

from delayq.model.occurrence import Missed


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
        paused: whether it fires only when `run_now` asks it to.
        next_at: the slot of the occurrence on its way, which is in the past when no consumer was there; None while
            paused.
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
    paused: bool
    next_at: dt.datetime | None
    next_id: str | None
    payload: Any
    headers: dict[str, Any]
    max_retries: int
    timeout: float | None
