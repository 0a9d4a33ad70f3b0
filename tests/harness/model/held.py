"""What the model is made of: a clock, messages, deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WAITING = ("pending", "ready", "retry")
PURGEABLE = ("pending", "ready", "retry", "dead")


@dataclass
class Clock:
    """The time that the scripts and the model go by: whole milliseconds, and microseconds past them."""

    ms: int = 1_700_000_000_000
    micros: int = 0

    def __call__(self) -> float:
        return self.ms + self.micros / 1000

    def after(self, delay_ms: int) -> int:
        """The first whole millisecond that is `delay_ms` or more from now."""
        return self.ms + delay_ms + (delay_ms > 0 and self.micros > 0)


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

    def lease_ran_out(self, now: Clock) -> bool:
        return self.lease_end + (self.handed_micros > 0) <= now.ms


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
