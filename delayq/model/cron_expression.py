"""When a schedule fires: cron expressions in a time zone, and intervals.

Clock changes are handled as in Debian's cron. A schedule whose minute or hour begins with ``*`` follows the wall clock:
times that the clock skips are left out, and times that it shows twice run twice. A schedule at fixed times runs once: a
time that the clock skips runs as soon as the gap is over, and a time that it shows twice runs the first time.
"""

from __future__ import annotations

import copy
import datetime as dt
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from delayq.errors import InvalidInput
from delayq.late_import import late_import
from delayq.model.time_zones import load_zone

if TYPE_CHECKING:
    import zoneinfo

MAX_CHARS = 256
MAX_INTERVAL_S = 366 * 86400
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = re.compile(r"every\s+(?=\d)(?:(\d+)\s*d)?\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*m)?\s*(?:(\d+)\s*s)?", re.IGNORECASE)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_START = dt.datetime(2000, 1, 1)  # noqa: DTZ001  # wall-clock time


class Recurrence(Protocol):
    """The slots of a schedule."""

    def after(self, ms: int) -> int | None:
        """Return the first slot later than `ms`, in milliseconds since 1970; None if there is none."""


@lru_cache(maxsize=4096)
def recurrence(when: str, timezone: str = "UTC") -> Recurrence:
    """Read an expression.

    Args:
        when: five fields (minute, hour, day of the month, month, day of the week), six with seconds in front, an alias
            such as @daily, or an interval such as "every 90s" or "every 1h 30m".
        timezone: the IANA time zone of the cron fields. Intervals count from 1970 in UTC.

    Raises:
        InvalidInput: says what is wrong and what to write instead.
    """
    zone = load_zone(timezone)
    if not isinstance(when, str) or not when.strip() or len(when) > MAX_CHARS:
        raise InvalidInput(f"schedule {_short(when)} is not a string of 1 to {MAX_CHARS} characters: try '*/5 * * * *'")
    text = when.strip()
    if text.lower().startswith("every"):
        return _interval(text)
    if text.startswith("@") and text.lower() not in ALIASES:
        raise InvalidInput(
            f"unknown schedule {when!r}; expected five fields, 'every 90s', or one of {', '.join(ALIASES)}"
        )
    found = _Cron(ALIASES.get(text.lower(), text), zone)
    if found.after(0) is None:
        raise InvalidInput(f"schedule {when!r} never fires: no such date exists")
    return found


class _Interval:
    """Slots at a fixed distance, counted from 1970: the same for all clients, whenever the schedule was added."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms

    def after(self, ms: int) -> int | None:
        return (ms // self._step_ms + 1) * self._step_ms


def _interval(text: str) -> _Interval:
    match = _EVERY.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"schedule {text!r} is not a valid interval: write it as 'every 90s', 'every 5m' or 'every 1h 30m'"
        )
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    step = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not 1 <= step <= MAX_INTERVAL_S:
        raise InvalidInput(f"schedule {text!r} is not between 1 second and 366 days: write it as 'every 90s'")
    return _Interval(step * 1000)


class _Cron:
    """Cron fields. The library parses them and finds wall-clock times; this class turns those into instants."""

    def __init__(self, text: str, zone: zoneinfo.ZoneInfo) -> None:
        with late_import:
            from cronsim import CronSim, CronSimError  # noqa: PLC0415
        fields = text.split()
        try:
            self._cron = CronSim(text, _START)  # without a time zone, so that its own rules for clock changes are off
        except (CronSimError, AssertionError, ValueError) as error:
            what = str(error) or "it cannot be read"
            raise InvalidInput(
                f"schedule {text!r}: {what}; write five fields (minute, hour, day of the month, month, day of the "
                "week), six with seconds in front, '@daily', or 'every 90s'"
            ) from error
        self._zone = zone
        minute, hour = fields[-5:-3]
        self._follows_wall = minute.startswith("*") or hour.startswith("*")

    def after(self, ms: int) -> int | None:
        try:
            instant = _EPOCH + dt.timedelta(seconds=ms // 1000)
            found = self._on_the_wall(instant) if self._follows_wall else self._once(instant)
        except (StopIteration, OverflowError):
            return None
        return (found - _EPOCH) // dt.timedelta(milliseconds=1)

    def _once(self, instant: dt.datetime) -> dt.datetime:
        for wall in self._walls(_naive(instant.astimezone(self._zone))):
            found = self._instant(wall)
            while found is None:  # the clock skips this time: run when the gap is over
                wall = wall.replace(second=0) + dt.timedelta(minutes=1)  # noqa: PLW2901
                found = self._instant(wall)
            if found > instant:
                return found
        raise StopIteration

    def _on_the_wall(self, instant: dt.datetime) -> dt.datetime:
        local = instant.astimezone(self._zone)
        found = self._first(_naive(local), instant)
        again = local.replace(fold=1).utcoffset()
        if local.fold == 0 and again != local.utcoffset():  # the clock will show this time a second time
            turn = self._change(instant, local)
            if found > turn:
                second = self._first(_naive(turn.astimezone(self._zone)) - dt.timedelta(seconds=1), turn - _SECOND)
                found = min(found, second)
        return found

    def _first(self, wall: dt.datetime, instant: dt.datetime) -> dt.datetime:
        for each in self._walls(wall):
            for fold in (0, 1):
                found = self._instant(each, fold)
                if found is not None and found > instant:
                    return found
        raise StopIteration

    def _walls(self, wall: dt.datetime) -> Iterator[dt.datetime]:
        """Return all matching wall-clock times later than `wall`."""
        cron = copy.copy(self._cron)
        cron.dt = wall
        return cron

    def _instant(self, wall: dt.datetime, fold: int = 0) -> dt.datetime | None:
        """Return the instant at which the wall clock shows this; None if the clock skips it."""
        found = wall.replace(tzinfo=self._zone, fold=fold).astimezone(dt.UTC)
        return found if _naive(found.astimezone(self._zone)) == wall else None

    def _change(self, instant: dt.datetime, local: dt.datetime) -> dt.datetime:
        """Return when the clock will be set back, to the second."""
        before, after = local.utcoffset(), local.replace(fold=1).utcoffset()
        assert before is not None
        assert after is not None
        low, high = 0, int((before - after).total_seconds())
        while high - low > 1:
            middle = (low + high) // 2
            same = (instant + dt.timedelta(seconds=middle)).astimezone(self._zone).utcoffset() == before
            low, high = (middle, high) if same else (low, middle)
        return instant + dt.timedelta(seconds=high)


_SECOND = dt.timedelta(seconds=1)


def _naive(moment: dt.datetime) -> dt.datetime:
    return moment.replace(tzinfo=None, fold=0)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:64]}…"
