"""Times as people write them: ``1h30m``, ``2026-12-24T18:00+01:00``."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, Overflow

from delayq.errors import InvalidTime
from delayq.times import MAX_TIME_MS

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds, longest first."""

_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in UNITS), re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds that ``500ms``, ``10s``, ``1h30m``, ``2d`` or ``1.5`` (seconds) stand for.

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
            raise InvalidTime(f"{text!r} is not a length of time, 0 or more: write it as in 500ms, 10s, 1h30m or 2d")
    except Overflow:  # a million digits
        ms = Decimal("Infinity")
    if ms > MAX_TIME_MS:
        raise InvalidTime(f"{text!r} leads past the year 9999")
    return float(ms / 1000)


def parse_moment(text: str) -> dt.datetime:
    """Return the moment that an ISO 8601 date and time with a zone stands for.

    Raises:
        InvalidTime: not in that form, or without a zone.
    """
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidTime(f"{text!r} is not a date and time: write it as in 2026-12-24T18:00+01:00") from error
    if moment.utcoffset() is None:
        raise InvalidTime(f"{text!r} names no time zone: add an offset, as in 2026-12-24T18:00+01:00, or Z for UTC")
    return moment


def parse_age(text: str) -> float | dt.datetime:
    """Return the seconds, or the moment, that a text stands for; raises InvalidTime for others."""
    for parse in (parse_duration, parse_moment):
        try:
            return parse(text)
        except InvalidTime:
            continue
    raise InvalidTime(f"{text!r} is neither a length of time, as in 1h30m, nor a moment, as in 2026-12-24T18:00+01:00")
