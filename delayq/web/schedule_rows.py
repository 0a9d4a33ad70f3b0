"""Schedules as pages list them: when each fires, in words and times, and the outcomes of its last occurrences."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from delayq.aio import Queue
from delayq.errors import ServerError
from delayq.model.event import Event, read
from delayq.model.record import Record
from delayq.model.schedule import Schedule
from delayq.model.units import from_ms, timestamp_ms
from delayq.operations import inspect
from delayq.web.redaction import Redaction
from delayq.web.schedule_words import words

OUTCOMES = 10
"""The number of a schedule's last occurrences whose outcomes a page shows."""

MOST_LOOKED_AT = 2000
"""The number of latest ledger entries that are searched for outcomes."""

STEP = 500
"""The number of ledger entries that are read at a time."""

BECAME = {
    "acked": "ok",
    "nacked": "failed",
    "died": "dead",
    "expired": "skipped",
    "delivered": "running",
    "lease_lost": "lost",
    "released": "waiting",
    "held_back": "waiting",
    "requeued": "waiting",
    "repaired": "waiting",
}
"""The outcome of an occurrence, by its last event in the ledger."""

_OCCURRENCE = re.compile(r"(?P<name>.*)@(\d+(~\d+)?|run-\w+)", re.DOTALL)


class Outcome(NamedTuple):
    """The outcome of an occurrence, as far as the ledger knows."""

    id: str
    word: str
    at: dt.datetime
    reason: str | None


LedgerState = Literal["kept", "unreadable", "none"]
_Outcomes: TypeAlias = dict[str, dict[str, Outcome]]
"""By schedule name, and then by occurrence id, the latest first."""


class ScheduleRow(NamedTuple):
    """A schedule as a row of the list.

    Attributes:
        next: its next times, the waiting occurrence first; empty if it is paused or finished.
        outcomes: the outcomes of its last occurrences, the latest first.
        is_late: whether its slot is over, no consumer has taken it, and no pause or limit holds it back.
    """

    schedule: Schedule
    next: list[dt.datetime]
    outcomes: tuple[Outcome, ...]
    is_late: bool

    @property
    def words(self) -> str:
        """When it fires, in words."""
        return words(self.schedule.when, self.schedule.timezone)

    @property
    def summary(self) -> str:
        """The number of each outcome: ``8 ok, 2 failed``."""
        return ", ".join(f"{count} {word}" for word, count in Counter(each.word for each in self.outcomes).items())


class ScheduleRows(NamedTuple):
    """The schedules of a queue.

    Attributes:
        total: the number of schedules; `rows` are the first of them.
        now: the time on the server's clock.
        ledger: whether the queue keeps a ledger, and this dashboard may read it.
    """

    queue: str
    now: dt.datetime
    rows: list[ScheduleRow]
    total: int
    ledger: LedgerState


async def schedule_rows(queue: Queue, most: int, times: int, redaction: Redaction) -> ScheduleRows:
    """List the schedules of a queue.

    Args:
        most: the maximum number of schedules, the first by name.
        times: the number of next times for each.
        redaction: hides values in the reasons.
    """
    found = await queue.schedules.list()
    listed = found[:most]
    is_kept = bool(found) and (await queue.configuration()).events is not None
    outcomes = await _outcomes(queue, {each.name for each in listed}, redaction) if is_kept else {}
    now = await queue.execute(inspect.now)
    late = await late_names(queue, listed, now)
    rows = [
        ScheduleRow(
            each, next_times(each, times), tuple((outcomes or {}).get(each.name, {}).values()), each.name in late
        )
        for each in listed
    ]
    ledger: LedgerState = "unreadable" if outcomes is None else "kept" if is_kept else "none"
    return ScheduleRows(queue.name, now, rows, len(found), ledger)


async def late_names(queue: Queue, found: Iterable[Schedule], now: dt.datetime) -> set[str]:
    """Return the names of schedules that are late; none while a pause or a limit holds the queue back."""
    late = {each.name for each in found if each.is_late(now)}
    is_held = bool(late) and await queue.execute(inspect.is_held_back)
    return set() if is_held else late


def next_times(schedule: Schedule, times: int) -> list[dt.datetime]:
    """Return the next times of a schedule, the waiting occurrence first."""
    if schedule.next_at is None:
        return []
    found, after = [schedule.next_at], schedule.slots.after
    while len(found) < times and (following := after(timestamp_ms(found[-1]))) is not None:
        found.append(from_ms(following))
    return found


async def _outcomes(queue: Queue, names: set[str], redaction: Redaction) -> _Outcomes | None:
    """Return the latest outcome of each occurrence in the ledger; None if the ledger may not be read."""
    found: _Outcomes = {name: {} for name in names}
    missing, end, looked_at = set(names), "+", 0
    while missing and looked_at < MOST_LOOKED_AT:
        try:
            records = await queue.events.range("-", end, STEP, reverse=True, due=False)
        except ServerError:  # such as missing rights; if the server is away, the next call says so
            return None
        if not records:
            break
        for record in filter(_may_be_occurrence, records):
            event = read(record.id, record.fields)
            name, outcome = _outcome(None if event is None else redaction.event(event))
            if outcome is not None and name in missing:
                found[name].setdefault(outcome.id, outcome)
                if len(found[name]) == OUTCOMES:
                    missing.discard(name)
        looked_at += len(records)
        end = f"({records[-1].id}"
    return found


def _may_be_occurrence(record: Record) -> bool:
    """Whether an entry may belong to an occurrence: decoding thousands takes long."""
    return len(record.fields) > 1 and b"@" in record.fields[1]


def _outcome(event: Event | None) -> tuple[str, Outcome | None]:
    """Return the name of a schedule, and the outcome of its occurrence; None if the entry has none."""
    match = None if event is None or event.event not in BECAME else _OCCURRENCE.fullmatch(event.id)
    if event is None or match is None:
        return "", None
    return match["name"], Outcome(event.id, BECAME[event.event], event.at, event.reason)
