"""Schedules as pages list them: when each fires, in words and in times, and what became of its last occurrences."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from typing import Literal, NamedTuple, TypeAlias

from delayq.aio import Queue
from delayq.errors import ServerError
from delayq.model.event import Event, read
from delayq.model.record import Record
from delayq.model.schedule import Schedule
from delayq.model.units import from_ms, timestamp_ms
from delayq.operations import inspect
from delayq.operations.topics.read import records_range
from delayq.web.redaction import Redaction
from delayq.web.schedule_words import words

OUTCOMES = 10
"""Occurrences of a schedule of which a page tells the outcome, the last ones."""

MOST_LOOKED_AT = 2000
"""Entries of a ledger, the latest ones, in which outcomes are looked for."""

STEP = 500
"""Entries of a ledger that are read at a time."""

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
"""What an entry of the ledger, the last one of an occurrence, says became of it."""

_OCCURRENCE = re.compile(r"(?P<name>.*)@(\d+(~\d+)?|run-\w+)", re.DOTALL)


class Outcome(NamedTuple):
    """What became of an occurrence, as far as the ledger tells."""

    id: str
    word: str
    at: dt.datetime
    reason: str | None


LedgerState = Literal["kept", "unreadable", "none"]
_Outcomes: TypeAlias = dict[str, dict[str, Outcome]]
"""By the names of schedules, and by the ids of occurrences, the latest first."""


class ScheduleRow(NamedTuple):
    """A schedule as its row tells it.

    Attributes:
        next: when it fires, the occurrence on its way first; empty when it is paused or finished.
        outcomes: of its last occurrences, the latest first.
    """

    schedule: Schedule
    next: list[dt.datetime]
    outcomes: tuple[Outcome, ...]

    @property
    def words(self) -> str:
        """When it fires, in words."""
        return words(self.schedule.when, self.schedule.timezone)

    @property
    def summary(self) -> str:
        """How often which outcome is among the last ones: ``8 ok, 2 failed``."""
        return ", ".join(f"{count} {word}" for word, count in Counter(each.word for each in self.outcomes).items())


class ScheduleRows(NamedTuple):
    """The schedules of a queue.

    Attributes:
        total: how many there are, of which `rows` are the first ones.
        now: what the server's clock showed.
        ledger: whether the queue keeps the ledger in which the outcomes are, and lets this dashboard read it.
    """

    queue: str
    now: dt.datetime
    rows: list[ScheduleRow]
    total: int
    ledger: LedgerState


async def schedule_rows(queue: Queue, most: int, times: int, redaction: Redaction) -> ScheduleRows:
    """List the schedules of a queue.

    Args:
        most: schedules that are listed, the first ones by name.
        times: how often each says when it fires next.
        redaction: hides values in the reasons.
    """
    found = await queue.schedules.list()
    listed = found[:most]
    is_kept = bool(found) and (await queue.configuration()).events is not None
    outcomes = await _outcomes(queue, {each.name for each in listed}, redaction) if is_kept else {}
    rows = [
        ScheduleRow(each, next_times(each, times), tuple((outcomes or {}).get(each.name, {}).values()))
        for each in listed
    ]
    ledger: LedgerState = "unreadable" if outcomes is None else "kept" if is_kept else "none"
    return ScheduleRows(queue.name, await queue.execute(inspect.now), rows, len(found), ledger)


def next_times(schedule: Schedule, times: int) -> list[dt.datetime]:
    """Return when a schedule fires next, the occurrence on its way first."""
    if schedule.next_at is None:
        return []
    found, after = [schedule.next_at], schedule.slots.after
    while len(found) < times and (following := after(timestamp_ms(found[-1]))) is not None:
        found.append(from_ms(following))
    return found


async def _outcomes(queue: Queue, names: set[str], redaction: Redaction) -> _Outcomes | None:
    """Return what the ledger tells last of the occurrences that were handed out; None where it may not be read."""
    found: _Outcomes = {name: {} for name in names}
    missing, end, looked_at = set(names), "+", 0
    while missing and looked_at < MOST_LOOKED_AT:
        try:
            records = await queue.events.execute(records_range, "-", end, STEP, True)
        except ServerError:  # such as a right that is missing; one that is away is told by the next call
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
    """Whether an entry may be one of an occurrence: to read each of thousands takes long."""
    return len(record.fields) > 1 and b"@" in record.fields[1]


def _outcome(event: Event | None) -> tuple[str, Outcome | None]:
    """Return the name of a schedule, and what became of its occurrence; None for an entry that says nothing of one."""
    match = None if event is None or event.event not in BECAME else _OCCURRENCE.fullmatch(event.id)
    if event is None or match is None:
        return "", None
    return match["name"], Outcome(event.id, BECAME[event.event], event.at, event.reason)
