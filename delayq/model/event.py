"""The ledger of a queue: if switched on, it has one entry for each transition of a message."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from delayq.errors import InvalidInput
from delayq.model.units import MAX_TIME_MS, from_ms

FIELDS = ("id", "event", "at", "attempt", "due", "late", "consumer", "reason")
"""The first fields of each entry, in this order."""

NEWEST = "+"
"""Where a search of the ledger begins."""

PLACE = re.compile(r"\((?P<ms>\d{1,15})-\d{1,19}", re.ASCII)
"""Where a search of the ledger may continue."""

_NUMBER = re.compile(r"-?\d{1,16}(\.\d+)?|-?inf", re.ASCII)
_WORD = re.compile(r"[a-z][a-z_]{0,63}", re.ASCII)


class _Entry(Protocol):
    """A record of the ledger, as its topic reads it."""

    @property
    def id(self) -> str: ...

    @property
    def fields(self) -> Sequence[bytes]: ...


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One transition of a message.

    Attributes:
        id: the id of the message.
        event: what happened: sent, promoted, delivered, acked, nacked, lease_lost, released, held_back, died, expired,
            cancelled, rescheduled, replaced, requeued, purged or repaired, each counted in `QueueStats`.
        at: when, by the clock of the queue.
        attempt: the number of the delivery, from 1; None if the event is not about a delivery.
        due_at: when the message was due, or is due next; None if it is not.
        late: how many seconds after that it was promoted or delivered, else None.
        consumer: which consumer received it, for delivered.
        reason: the error of nacked, the reason of died, and so on.
        entry: the id of the entry in the ledger.
    """

    id: str
    event: str
    at: dt.datetime
    attempt: int | None = None
    due_at: dt.datetime | None = None
    late: float | None = None
    consumer: str | None = None
    reason: str | None = None
    entry: str

    @classmethod
    def of(cls, record: _Entry) -> Event:
        """Read an event from a record of the ledger (`Queue.events`).

        Raises:
            InvalidInput: another program appended the record.
        """
        event = read(record.id, record.fields)
        if event is None:
            raise InvalidInput(f"record {record.id} is not a ledger entry: another program appended it")
        return event


def read(entry: str, fields: Sequence[Any]) -> Event | None:
    """Read an entry of the ledger: names and values as bytes; None if delayq did not write it."""
    names = [_text(name) for name in fields[: 2 * len(FIELDS) : 2]]
    if tuple(names) != FIELDS or len(fields) % 2:
        return None
    values = {name: _text(value) for name, value in zip(names, fields[1::2], strict=False)}
    try:
        at, attempt, due, late = (_number(values[name]) for name in ("at", "attempt", "due", "late"))
    except ValueError:
        return None
    if at is None or not 0 <= at <= MAX_TIME_MS or not values["id"] or not _WORD.fullmatch(values["event"]):
        return None
    if any(number is not None and not math.isfinite(number) for number in (attempt, late)):
        return None
    return Event(
        id=bytes(fields[1]).decode("utf-8", "surrogateescape"),
        event=values["event"],
        at=from_ms(at),
        attempt=None if attempt is None else int(attempt),
        due_at=None if due is None else from_ms(due),
        late=None if late is None else late / 1000,
        consumer=values["consumer"] or None,
        reason=values["reason"] or None,
        entry=entry,
    )


def _text(value: Any) -> str:
    return bytes(value).decode(errors="replace")


def _number(text: str) -> float | None:
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return float(text)
