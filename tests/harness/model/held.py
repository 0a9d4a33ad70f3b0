"""What the model is made of: a clock, messages, deliveries, schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WAITING = ("pending", "ready", "retry")
PURGEABLE = ("pending", "ready", "retry", "dead")
DEFAULT_RETRIES = 5  # of what nothing is known any more


def timeout_of(max_retries: int) -> float | None:
    """The seconds with which messages of so many retries are sent: they must come along wherever these do."""
    return None if max_retries in (0, DEFAULT_RETRIES) else float(max_retries)


def retrying(max_retries: int) -> dict[str, Any]:
    """The options of a send."""
    return {"max_retries": max_retries, "timeout": timeout_of(max_retries)}


@dataclass
class Clock:
    """The time that the scripts and the model go by: whole milliseconds, and microseconds past them."""

    ms: int = 1_700_000_000_000
    micros: int = 0

    def __call__(self) -> float:
        return self.ms + self.micros / 1000

    @property
    def us(self) -> int:
        return self.ms * 1000 + self.micros

    def after(self, delay_ms: int) -> int:
        """The first whole millisecond that is `delay_ms` or more from now."""
        return self.ms + delay_ms + (delay_ms > 0 and self.micros > 0)


@dataclass(frozen=True)
class Plan:
    """When a schedule fires, and what becomes of slots that nobody was there for."""

    every: int  # ms
    missed: str = "once"
    grace: int = 0  # ms, of "skip"

    def after(self, ms: int) -> int:
        return (ms // self.every + 1) * self.every

    def following(self, slot: int, now: int) -> int:
        """The slot that follows one that is handed out now."""
        return self.after(max(slot, {"once": now, "skip": now - self.grace - 1, "all": slot}[self.missed]))

    def passed_over(self, slot: int, following: int) -> int:
        """How many slots between two are missed: at most 100 are counted."""
        return 0 if self.missed == "all" else min(100, (following - 1) // self.every - slot // self.every)

    def skips(self, slot: int, now: int) -> bool:
        return self.missed == "skip" and now - slot > self.grace


@dataclass
class Schedule:
    """A schedule, and the slot of its occurrence that is on its way: 0 while it is paused."""

    plan: Plan
    payload: Any
    max_retries: int
    armed: int = 0


@dataclass
class Held:
    """A message in the queue. `score` is its due time, its time of death, or since when it is garbage."""

    id: str
    payload: Any
    state: str
    score: int
    created: int
    max_retries: int
    expires: int | None = None
    slot: tuple[str, int, Plan] | None = None  # of which schedule it is an occurrence
    has_payload: bool = True
    past: int = 0
    released: int = 0
    attempts_reset: int = 0
    lost: int = 0
    known: bool = False  # something is recorded of its deliveries
    error: str | None = None
    reason: str | None = None
    cancelled: bool = False
    delivery: int = 0  # the number of the running one
    lease_end: int = 0
    handed_micros: int = 0

    @property
    def used(self) -> int:
        return self.past - self.attempts_reset

    @property
    def lease_end_us(self) -> int:
        return self.lease_end * 1000 + self.handed_micros

    def lease_ran_out(self, now: Clock) -> bool:
        return self.lease_end_us <= now.ms * 1000


@dataclass(frozen=True)
class Claimed:
    """A delivery that is on its way to a client."""

    message: Held
    number: int
    due: int
    at_us: int  # when it was handed out
    until_us: int  # when its lease ends


@dataclass(frozen=True)
class Handed:
    """A delivery as the consumer sees it; `number` tells it from all others."""

    number: int
    id: str
    payload: Any
    attempt: int
    due: int
    lease_end: int
    max_retries: int
    used: int
    at_us: int  # when it was handed out
    key: str | None = None  # with which others it shares a limit


@dataclass(frozen=True)
class Follower:
    """What is to follow from an ack."""

    id: str
    payload: Any
    delay: int
    max_retries: int
    expires: int | None
    conflict: str
