"""Conversion between the seconds, timedeltas and datetimes of the API and the whole milliseconds used inside."""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from decimal import Decimal, Overflow
from typing import TypeAlias

from delayq.errors import InvalidTime

Seconds: TypeAlias = float | dt.timedelta
"""A duration: a number of seconds, or a timedelta."""

MAX_TIME_MS = 253_402_300_799_999  # the last millisecond of the year 9999, the last that a datetime can hold
MAX_COUNT = 10**15  # of anything in Redis: beyond it, the numbers of Lua and JavaScript are not exact
MAX_PAUSE_MS = 366 * 86_400_000
MAX_LEASE_MS = 86_400_000  # a day: a longer lease would leave a crash unnoticed for longer


def milliseconds(seconds: Seconds, what: str = "delay") -> int:
    """Return `seconds` (0 or more) as whole milliseconds, rounded up: a delay is never cut short.

    Raises:
        InvalidTime: negative, NaN, not a number, or past the year 9999.
    """
    if type(seconds) is int and 0 <= seconds <= _PLAIN_SECONDS:  # the common case
        return seconds * 1000
    value = seconds.total_seconds() if isinstance(seconds, dt.timedelta) else seconds
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTime(f"{what} {shown(seconds)} is not a time: give a number of seconds or a timedelta")
    if not value >= 0:
        raise InvalidTime(f"{what} {shown(seconds)} is not 0 or more seconds")
    if value * 1000 > MAX_TIME_MS:
        raise InvalidTime(f"{what} {shown(seconds)} is past the year 9999")
    # A float such as 0.07 is 70.00000000000001 ms: ignore a nanosecond, or the last digit of a float.
    ms = value * 1000
    return round(ms) if abs(ms - round(ms)) <= max(1e-6, math.ulp(ms)) else math.ceil(ms)


def span_ms(seconds: Seconds, what: str) -> int:
    """Return `seconds` as `milliseconds` does, but 0 for less than a millisecond: for ranges that begin with one."""
    ms = milliseconds(seconds, what)
    value = seconds.total_seconds() if isinstance(seconds, dt.timedelta) else seconds
    return 0 if ms == 1 and value < 0.001 else ms


def shown(value: object) -> str:
    """Return a value for an error message, also if it is an integer with too many digits for Python to write."""
    try:
        return repr(value)
    except ValueError:
        return "of thousands of digits"


def delay_ms(delay: Seconds, what: str = "delay") -> int:
    """Return a delay from now as milliseconds; raises InvalidTime as `milliseconds` does."""
    ms = milliseconds(delay, what)
    if ms > _PLAIN_SECONDS * 1000 and ms + time.time() * 1000 > MAX_TIME_MS:
        raise InvalidTime(f"{what} {delay!r} is past the year 9999")
    return ms


def lease_ms(lease: Seconds, what: str = "lease") -> int:
    """Return the length of a lease, 1 ms to a day, as milliseconds.

    Raises:
        InvalidTime: outside that range.
    """
    ms = span_ms(lease, what)
    if not 1 <= ms <= MAX_LEASE_MS:
        raise InvalidTime(f"{what} {lease!r} is not between 0.001 and {MAX_LEASE_MS // 1000} seconds")
    return ms


def timestamp_ms(at: dt.datetime, what: str = "at") -> int:
    """Return an aware datetime as milliseconds since 1970, rounded up; a time in the past is due at once.

    Raises:
        InvalidTime: not a datetime, naive, or before 1970.
    """
    if not isinstance(at, dt.datetime):
        raise InvalidTime(f"{what}={at!r} is not a datetime")
    if at.utcoffset() is None:
        raise InvalidTime(
            f"{what}={at.isoformat()} is naive: add a time zone, with {what}.astimezone() for local time or "
            f"{what}.replace(tzinfo=timezone.utc) for UTC"
        )
    ms = -((_EPOCH - at) // _MILLISECOND)
    if not 0 <= ms <= MAX_TIME_MS:
        raise InvalidTime(f"{what}={at.isoformat()} is not between 1970 and the year 9999")
    return ms


def due_word(delay: object, at: dt.datetime | None) -> str | int:
    """Return a due time as scripts take it: '+delay_ms' or ms; now if both are None.

    Raises:
        InvalidTime: both were given, or either is out of range.
    """
    if at is None:
        return "+0" if delay is None else f"+{delay_ms(delay)}"  # type: ignore[arg-type]  # delay_ms checks it
    if delay is not None:
        raise InvalidTime(f"delay={delay!r} and at={at!r} were given: give one of them")
    return timestamp_ms(at)


def from_ms(ms: float) -> dt.datetime:
    """Return milliseconds since 1970 as an aware datetime in UTC; values out of range become the nearest end."""
    if 0 <= ms < _EXACT_MS:
        return dt.datetime.fromtimestamp(int(ms) / 1000, dt.UTC)
    return _EPOCH + dt.timedelta(milliseconds=math.floor(min(MAX_TIME_MS, max(0, ms))))  # in this order, NaN is 0


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PLAIN_SECONDS = 10**9  # well before the year 9999, even from now
_EXACT_MS = 2**32 * 1000  # until 2106, a float of seconds is exact to less than half a microsecond
_MILLISECOND = dt.timedelta(milliseconds=1)


UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds, longest first."""


_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)


_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in UNITS), re.ASCII)


def parse_duration(text: str) -> float:
    """Read a duration such as ``500ms``, ``10s``, ``1h30m``, ``2d`` or ``1.5`` (seconds), and return its seconds.

    Units are w, d, h, m, s and ms, each at most once, longest first.

    Raises:
        InvalidTime: anything else, or past the year 9999.
    """
    written = text.strip()
    match = _DURATION.fullmatch(written)
    try:
        if _NUMBER.fullmatch(written):
            ms = Decimal(written) * 1000
        elif written and match:
            ms = sum((Decimal(count) * UNITS[unit] for unit, count in match.groupdict().items() if count), Decimal())
        else:
            raise InvalidTime(f"{text!r} is not a duration of 0 or more: write it as 500ms, 10s, 1h30m or 2d")
    except Overflow:  # a million digits
        ms = Decimal("Infinity")
    if ms > MAX_TIME_MS:
        raise InvalidTime(f"{text!r} is past the year 9999")
    return float(ms / 1000)


def parse_moment(text: str) -> dt.datetime:
    """Read a moment from an ISO 8601 date and time with a zone.

    Raises:
        InvalidTime: not in that form, or without a zone.
    """
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidTime(f"{text!r} is not a date and time: write it as 2026-12-24T18:00+01:00") from error
    if moment.utcoffset() is None:
        raise InvalidTime(f"{text!r} has no time zone: add an offset, as in 2026-12-24T18:00+01:00, or Z for UTC")
    return moment


def parse_age(text: str) -> float | dt.datetime:
    """Read a duration as seconds, or a moment; raises InvalidTime for any other text."""
    for parse in (parse_duration, parse_moment):
        try:
            return parse(text)
        except InvalidTime:
            continue
    raise InvalidTime(f"{text!r} is not a duration, such as 1h30m, or a time, such as 2026-12-24T18:00+01:00")
