"""Debian's cron, minute by minute: only what `main` of its cron.c does with the time.

It wakes each minute, and keeps a virtual time that follows wall clock time. If the wall clock jumps ahead by up to
three hours, jobs at fixed times are looked up for each skipped minute, and the others only for the current one. If it
falls back by up to three hours, only the others are looked up until it has caught up. A larger jump is treated as a
correction of the clock: all jobs are looked up for the current minute.

Source: Vixie cron 3.0 with Debian's handling of the clock: `main` in cron.c (the four cases of wakeupKind), and the
flags MIN_STAR and HR_STAR of entry.c.
"""

from __future__ import annotations

import calendar
import datetime as dt
import zoneinfo
from collections.abc import Iterator

SMALL, MEDIUM = 5, 180  # minutes
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
NAMES: tuple[dict[str, int], ...] = (
    {},
    {},
    {},
    {name.lower(): i for i, name in enumerate(calendar.month_abbr) if i},
    {name.lower(): (i + 1) % 7 for i, name in enumerate(calendar.day_abbr)},
)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock time


class Job:
    """Five fields, and the flags that entry.c derives from them."""

    def __init__(self, text: str) -> None:
        self.fields = text.split()
        self.minutes, self.hours, self.days, self.months, self.weekdays = (
            frozenset(_values(field, number)) for number, field in enumerate(self.fields)
        )
        self.is_wild = self.fields[0].startswith("*") or self.fields[1].startswith("*")
        self._both = self.fields[2].startswith("*") or self.fields[4].startswith("*")

    def is_on(self, day: dt.date) -> bool:
        """Whether it runs on a day at all."""
        month_day, weekday = day.day in self.days, day.isoweekday() % 7 in {each % 7 for each in self.weekdays}
        return day.month in self.months and (month_day and weekday if self._both else month_day or weekday)

    def fits(self, minute: int) -> bool:
        """Whether it runs in a minute of the wall clock, counted from 1970."""
        wall = _EPOCH + dt.timedelta(minutes=minute)
        return wall.minute in self.minutes and wall.hour in self.hours and self.is_on(wall.date())


def runs(job: Job, zone: zoneinfo.ZoneInfo, start: dt.datetime, end: dt.datetime) -> Iterator[dt.datetime]:
    """Every minute from `start` until before `end` in which a job starts; cron was already running before."""
    moment = start
    virtual = _wall_minute(moment - dt.timedelta(minutes=1), zone)
    while moment < end:
        wall = _wall_minute(moment, zone)
        ahead = wall - virtual
        if ahead <= -MEDIUM or ahead > MEDIUM:
            started, virtual = job.fits(wall), wall
        elif ahead > SMALL:  # fixed jobs of the skipped minutes, and wildcard jobs of the current one
            fixed = any(job.fits(minute) for minute in range(virtual + 1, wall + 1))
            started, virtual = job.fits(wall) if job.is_wild else fixed, wall
        elif ahead > 0:
            started, virtual = any(job.fits(minute) for minute in range(virtual + 1, wall + 1)), wall
        else:
            started = job.is_wild and job.fits(wall)
        if started:
            yield moment
        moment += dt.timedelta(minutes=1)


def _wall_minute(moment: dt.datetime, zone: zoneinfo.ZoneInfo) -> int:
    return (moment.astimezone(zone).replace(tzinfo=None, fold=0) - _EPOCH) // dt.timedelta(minutes=1)


def _values(field: str, number: int) -> Iterator[int]:
    for part in field.lower().split(","):
        span, _, step = part.partition("/")
        low, high = RANGES[number]
        if span != "*":
            first, _, last = span.partition("-")
            low = _value(first, number)
            high = _value(last, number) if last else (high if step else low)
        yield from range(low, high + 1, int(step or 1))


def _value(text: str, number: int) -> int:
    return NAMES[number].get(text, -1) if text.isalpha() else int(text)
