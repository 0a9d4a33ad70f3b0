"""Positions in a topic: ids and times, converted from the user's form to that of Redis."""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple, TypeAlias

from delayq.errors import InvalidInput
from delayq.model.units import timestamp_ms

Position: TypeAlias = str | dt.datetime
"""The id of a record, or a time."""


class Place(NamedTuple):
    """The place of a record of a topic, or of a dead letter of a group: the topic's shard, from 0, and the id there."""

    shard: int
    id: str


MAX_ID_PART = 2**53 - 1  # what Lua counts exactly
_COUNTER_BITS = 64
_ID = re.compile(r"\d{1,16}(-\d{1,16})?", re.ASCII)


def bound(position: Position, what: str) -> str:
    """Return one end of a range: "-", "+", an id, "(" and an id to exclude it, or a time.

    An id may lack its counter: a start then means the first id of the millisecond, an end the last.

    Raises:
        InvalidInput: names the position.
    """
    if isinstance(position, dt.datetime):
        return str(timestamp_ms(position, what))
    if not isinstance(position, str):
        raise InvalidInput(f"{what} {position!r} is not an id or a datetime")
    if position in ("-", "+"):
        return position
    exclusive = position.startswith("(")
    form = 'as "-", "+", an id, or "(" and an id'
    return ("(" if exclusive else "") + _checked(position.removeprefix("("), what, form)


def beginning(start: Position, what: str = "start") -> str:
    """Return the id after which a group or a reader starts: "$" for new records, "0" for all, an id, or a time.

    Raises:
        InvalidInput: names the position.
    """
    if isinstance(start, dt.datetime):
        ms = timestamp_ms(start, what)
        return f"{ms - 1}-18446744073709551615" if ms else "0-0"
    if not isinstance(start, str):
        raise InvalidInput(f"{what} {start!r} is not an id or a datetime")
    return start if start == "$" else _checked(start, what, 'as "$", "0", an id or a datetime')


def own_id(record_id: str) -> str:
    """Return an id chosen by a publisher, such as "1700000000000-0"; raises InvalidInput."""
    checked = _checked(record_id, "record id", 'as in "1700000000000-0"') if isinstance(record_id, str) else ""
    ms, _, number = checked.partition("-")
    if not number or (int(ms), int(number)) == (0, 0):
        raise InvalidInput(f'record id {record_id!r} is not milliseconds and a counter, such as "1700000000000-0"')
    return f"{int(ms)}-{int(number)}"


def known_id(record_id: str) -> str:
    """Return an id that a record may have; raises InvalidInput."""
    return _checked(record_id, "record id", 'as in "1700000000000-0"')


def order(record_id: str) -> tuple[int, int]:
    """Return an id as numbers, which sort like the ids."""
    ms, _, number = record_id.partition("-")
    return int(ms), int(number or 0)


def number_of(record_id: str) -> int:
    """Return an id as one number; the distances between numbers correspond to those between times."""
    ms, counter = order(record_id)
    return (ms << _COUNTER_BITS) + counter


def id_of(number: int) -> str:
    """Return the id for a number of `number_of`."""
    return f"{number >> _COUNTER_BITS}-{number & ((1 << _COUNTER_BITS) - 1)}"


def before(record_id: str) -> str:
    """Return the last id before this one."""
    ms, number = order(record_id)
    return f"{ms}-{number - 1}" if number else f"{max(0, ms - 1)}-{MAX_ID_PART if ms else 0}"


def _checked(record_id: str, what: str, form: str) -> str:
    if not _ID.fullmatch(record_id) or any(int(part) > MAX_ID_PART for part in record_id.split("-")):
        raise InvalidInput(f"{what} {record_id[:64]!r} is not an id of a record: give it {form}")
    return record_id
