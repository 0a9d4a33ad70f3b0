"""Where in a topic to begin: ids and times, from how users write them to how Redis does."""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple, TypeAlias

from delayq.errors import InvalidInput
from delayq.model.units import timestamp_ms

Position: TypeAlias = str | dt.datetime
"""The id of a record, or a time."""


class Place(NamedTuple):
    """Where a record of a topic, or a dead letter of a group, is: the shard of the topic, from 0, and its id there."""

    shard: int
    id: str


MAX_ID_PART = 2**53 - 1  # what Lua counts exactly
_ID = re.compile(r"\d{1,16}(-\d{1,16})?", re.ASCII)


def bound(position: Position, what: str) -> str:
    """Return one end of a range: "-", "+", an id, "(" and an id to leave that out, or a time.

    An id may lack its counter: as a beginning it stands for the first of the millisecond, as an end for the last.

    Raises:
        InvalidInput: naming it.
    """
    if isinstance(position, dt.datetime):
        return str(timestamp_ms(position, what))
    if not isinstance(position, str):
        raise InvalidInput(f"{what} {position!r} is neither an id nor a datetime")
    if position in ("-", "+"):
        return position
    exclusive = position.startswith("(")
    return ("(" if exclusive else "") + _checked(position.removeprefix("("), what, 'as "-", "+" or "(" and an id')


def beginning(start: Position, what: str = "start") -> str:
    """Return the id behind which a group or a reader begins: "$" from now on, "0" from the first record, an id, a time.

    Raises:
        InvalidInput: naming it.
    """
    if isinstance(start, dt.datetime):
        ms = timestamp_ms(start, what)
        return f"{ms - 1}-18446744073709551615" if ms else "0-0"
    if not isinstance(start, str):
        raise InvalidInput(f"{what} {start!r} is neither an id nor a datetime")
    return start if start == "$" else _checked(start, what, 'as "$", "0", an id or a datetime')


def own_id(record_id: str) -> str:
    """Return an id that a publisher has chosen, as in "1700000000000-0"; raises InvalidInput."""
    checked = _checked(record_id, "record id", 'as in "1700000000000-0"') if isinstance(record_id, str) else ""
    ms, _, number = checked.partition("-")
    if not number or (int(ms), int(number)) == (0, 0):
        raise InvalidInput(f'record id {record_id!r} is not milliseconds and a counter, as in "1700000000000-0"')
    return f"{int(ms)}-{int(number)}"


def known_id(record_id: str) -> str:
    """Return an id that a record may have; raises InvalidInput."""
    return _checked(record_id, "record id", 'as in "1700000000000-0"')


def order(record_id: str) -> tuple[int, int]:
    """Return an id as numbers, which sort as the ids do."""
    ms, _, number = record_id.partition("-")
    return int(ms), int(number or 0)


def before(record_id: str) -> str:
    """Return the last id in front of one."""
    ms, number = order(record_id)
    return f"{ms}-{number - 1}" if number else f"{max(0, ms - 1)}-{MAX_ID_PART if ms else 0}"


def _checked(record_id: str, what: str, form: str) -> str:
    if not _ID.fullmatch(record_id) or any(int(part) > MAX_ID_PART for part in record_id.split("-")):
        raise InvalidInput(f"{what} {record_id[:64]!r} is not an id of a record: give it {form}")
    return record_id
