"""Histories for the tests of the checker, one call per event; times are seconds of a run whose clocks all agree."""

from __future__ import annotations

from typing import Any

from tests.harness.chaos.checker import WRONG, Verdict, check
from tests.harness.chaos.history import Event, Kind

SERVER = 0
A, B, C = 1, 2, 3  # processes
LEASE = 2.0


def seen(kind: Kind, at: float, pid: int = 9, **fields: Any) -> Event:
    """Return an event after `at` seconds of a run whose clocks agree."""
    fields = {"ms": at * 1000, "wall_ms": at * 1000} | fields if kind == "delivered" else fields
    return Event(kind, at, pid, fields.pop("id", "m"), **fields)


def sent(at: float = 1.0, due: float = 1.0) -> list[Event]:
    return [seen("attempted", at), seen("sent", at + 0.01, ms=due * 1000)]


def delivered(at: float, pid: int = A, attempt: int = 1, **fields: Any) -> Event:
    return seen("delivered", at, pid, attempt=attempt, **fields)


def finished(at: float, pid: int = A, attempt: int = 1) -> Event:
    return seen("finished", at, pid, attempt=attempt)


def failed(at: float, pid: int = A, attempt: int = 1, wait: float = 0.0) -> Event:
    return seen("failed", at, pid, attempt=attempt, ms=wait * 1000)


def fault(at: float, pid: int) -> Event:
    return Event("fault", at, pid)


def recovered(at: float, pid: int) -> Event:
    return Event("recovered", at, pid)


def judged(*events: Event | list[Event], lease: float | None = None) -> Verdict:
    found = [each for event in events for each in (event if isinstance(event, list) else [event])]
    return check(sorted(found, key=lambda event: event.at), lease)


def wrong(verdict: Verdict) -> dict[str, list[str]]:
    """Return what the verdict finds wrong, and check that the verdict fails exactly then."""
    found = {name: getattr(verdict, name) for name in WRONG if getattr(verdict, name)}
    assert verdict.is_valid == (not found)
    return found
