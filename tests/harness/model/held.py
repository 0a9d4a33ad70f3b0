"""The parts of the model: a clock, messages, deliveries, schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from delayq.model.result import KeptFor

WAITING = ("pending", "ready", "retry")
PURGEABLE = ("pending", "ready", "retry", "dead", "held")
DEFAULT_RETRIES = 5  # for a message whose retries are lost


def timeout_of(max_retries: int) -> float | None:
    """The timeout of messages with this many retries: it must be kept wherever the retries are."""
    return None if max_retries in (0, DEFAULT_RETRIES) else float(max_retries)


def token_of(payload: Any, max_retries: int) -> str:
    """The token of a message that keeps its task's result: each has its own. Those with one retry do, "" for others."""
    return f"t{next(iter(payload.values()))}" if max_retries == 1 and "scheduled" not in payload else ""


def retrying(max_retries: int, payload: Any = None) -> dict[str, Any]:
    """The options of a send, for some payloads those of a task that keeps its result."""
    options: dict[str, Any] = {"max_retries": max_retries, "timeout": timeout_of(max_retries)}
    if payload and (token := token_of(payload, max_retries)):
        results = KeptFor.of(86_400)
        results.token = token
        options |= {"task": "t", "results": results}
    return options


@dataclass
class Clock:
    """The time of the scripts and the model: whole milliseconds, and microseconds past them."""

    ms: int = 1_700_000_000_000
    micros: int = 0

    def __call__(self) -> float:
        return self.ms + self.micros / 1000

    @property
    def us(self) -> int:
        return self.ms * 1000 + self.micros

    @property
    def marked_us(self) -> int:
        """When something is handed out to a program that calls `receive`: an even microsecond."""
        return self.us - self.us % 2

    def after(self, delay_ms: int) -> int:
        """The first whole millisecond at least `delay_ms` from now."""
        return self.ms + delay_ms + (delay_ms > 0 and self.micros > 0)


@dataclass(frozen=True)
class Plan:
    """When a schedule fires, and what happens to missed slots."""

    every: int  # ms
    missed: str = "once"
    grace: int = 0  # ms, of "skip"

    def after(self, ms: int) -> int:
        return (ms // self.every + 1) * self.every

    def following(self, slot: int, now: int) -> int:
        """The slot after one that is handed out now."""
        return self.after(max(slot, {"once": now, "skip": now - self.grace - 1, "all": slot}[self.missed]))

    def passed_over(self, slot: int, following: int) -> int:
        """How many slots between two were missed; counts at most 100."""
        return 0 if self.missed == "all" else min(100, (following - 1) // self.every - slot // self.every)

    def skips(self, slot: int, now: int) -> bool:
        return self.missed == "skip" and now - slot > self.grace


@dataclass
class Schedule:
    """A schedule, and the slot of its armed occurrence: 0 while it is paused."""

    plan: Plan
    payload: Any
    max_retries: int
    armed: int = 0


@dataclass
class Held:
    """A message in the queue. `score` is its due time, its time of death, or when it became garbage."""

    id: str
    payload: Any
    state: str
    score: int
    created: int
    max_retries: int
    expires: int | None = None
    slot: tuple[str, int, Plan] | None = None  # the schedule and slot of an occurrence
    has_payload: bool = True
    past: int = 0
    released: int = 0
    attempts_reset: int = 0
    lost: int = 0
    known: bool = False  # its deliveries are recorded
    error: str | None = None
    reason: str | None = None
    cancelled: bool = False
    delivery: int = 0  # the number of the current one
    lease_end: int = 0
    handed_micros: int = 0
    token: str = ""  # of a message that keeps its task's result
    met: tuple[float, float, str] | None = None  # when its task was first and last unknown, ms, and the error of that

    @property
    def used(self) -> int:
        return self.past - self.attempts_reset

    @property
    def lease_end_us(self) -> int:
        return self.lease_end * 1000 + self.handed_micros


@dataclass(frozen=True)
class Claimed:
    """A delivery on its way to a client."""

    message: Held
    number: int
    due: int
    at_us: int  # when it was handed out
    until_us: int  # when its lease ends
    lease: int  # ms


@dataclass(frozen=True)
class Handed:
    """A delivery as the consumer sees it; `number` identifies it."""

    number: int
    id: str
    payload: Any
    attempt: int
    due: int
    lease_end: int
    max_retries: int
    used: int
    at_us: int  # when it was handed out
    key: str | None = None  # the key whose limit it shares


@dataclass(frozen=True)
class Follower:
    """A follow-up of an ack."""

    id: str
    payload: Any
    delay: int
    max_retries: int
    expires: int | None
    conflict: str
