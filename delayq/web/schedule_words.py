"""When a schedule fires, in words: "Every weekday at 09:00, Europe/Berlin"."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from cronsim import CronSim, CronSimError

from delayq.model.cron_expression import ALIASES

_ANY_TIME = dt.datetime(2000, 1, 1)  # noqa: DTZ001  # the words do not depend on it
_DAY = 1440  # minutes
_MOST_LISTED = 8  # times or days: a longer list is harder to read than the expression
_WEEKDAYS = {1, 2, 3, 4, 5}
_DayOfWeek: TypeAlias = int | tuple[int, int]
"""0 for Sunday to 6; in a tuple with which of a month's five it is, or `CronSim.LAST`."""


def words(when: str, timezone: str) -> str:
    """Return a schedule's expression in words, or the expression itself if no short sentence is right."""
    text = when.strip()
    if text.lower().startswith("every"):
        return text[0].upper() + text[1:]
    try:
        cron = CronSim(ALIASES.get(text.lower(), text), _ANY_TIME)
    except (CronSimError, AssertionError, ValueError):  # such as one of a newer version
        return f"{text}, {timezone}"
    # From the sets that decide what fires, not from the text: fields that look alike can mean different things.
    time, date = _time(cron), _date(cron)
    if time is None or date is None:
        return f"{text}, {timezone}"
    if date == " on weekdays" and time.startswith("At "):
        return f"Every weekday at {time[3:]}, {timezone}"
    if time.startswith("At ") and not date.startswith(" on "):
        date = f" every day{date}"
    return f"{time}{date}, {timezone}"


def _time(cron: CronSim) -> str | None:
    """Say at which times of a day it fires; None if that takes too many words."""
    if len(cron.seconds) > 1:
        step = _step(sorted(cron.seconds), 60)
        is_always = len(cron.minutes) == 60 and len(cron.hours) == 24
        return _every(step, "second") if is_always and step and 0 in cron.seconds else None
    (second,) = cron.seconds
    minutes, hours = sorted(cron.minutes), sorted(cron.hours)
    times = [hour * 60 + minute for hour in hours for minute in minutes]
    found = _times(times, f":{second:02}" if second else "")
    if found is None and len(hours) == 24 and not second:
        found = _within_hours(minutes)
    if found == "Every minute" and second:
        return f"Every minute at second {second}"
    return found if found is None or not second or found.startswith("At ") else None


def _times(times: Sequence[int], second: str) -> str | None:
    """Say which minutes of a day these are."""
    step, around = _step(times), _step(times, _DAY)
    listed = "At " + _list([_clock(each) + second for each in times[:_MOST_LISTED]])
    if len(times) <= 2:
        return listed
    if around and times[0] == 0:
        return _every_minutes(around)
    if around == 60:
        return f"Every hour at :{times[0]:02}"
    if len(times) <= 4:
        return listed
    if step:
        return f"{_every_minutes(step)} from {_clock(times[0])} to {_clock(times[-1])}"
    return listed if len(times) <= _MOST_LISTED else None


def _within_hours(minutes: Sequence[int]) -> str | None:
    if len(minutes) > 4 and (step := _step(minutes)):
        return f"{_every(step, 'minute')} of each hour, from :{minutes[0]:02} to :{minutes[-1]:02}"
    return f"Every hour at {_list([f':{each:02}' for each in minutes])}" if len(minutes) <= _MOST_LISTED else None


def _step(numbers: Sequence[int], around: int | None = None) -> int | None:
    """Return the distance between all neighbours, with `around` also from the last to the first; None if it varies."""
    following = [*numbers[1:], *([] if around is None else [numbers[0] + around])]
    steps = {later - earlier for earlier, later in zip(numbers, following, strict=False)}
    return steps.pop() if len(steps) == 1 else None


def _every_minutes(step: int) -> str:
    return _every(step, "minute") if step % 60 else _every(step // 60, "hour")


def _every(step: int, unit: str) -> str:
    return f"Every {unit}" if step == 1 else f"Every {step} {unit}s"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _date(cron: CronSim) -> str | None:
    """Say on which days it fires, with a blank in front; None if that takes too many words."""
    days, weekdays = set(cron.days), _weekdays(cron.weekdays)
    any_day, any_weekday = days >= set(range(1, 32)), weekdays >= set(range(7))
    if (any_day and any_weekday) or (not cron.day_and and (any_day or any_weekday)):
        found: str | None = ""
    elif any_day:
        found = " on weekdays" if weekdays == _WEEKDAYS else f" on {_list(_names(weekdays))}"
    else:
        found = (numbered := _numbered(days)) and f" on {numbered} of the month"
        if found and not any_weekday:
            either = _list(_names(weekdays, "any " if not cron.day_and else "a "), "or")
            found += f" or on {either}" if not cron.day_and else f" if it is {either}"
    if found is None or len(cron.months) == 12:
        return found
    months = [calendar.month_name[each] for each in sorted(cron.months)]
    if len(months) == 1 and any_weekday and found:
        return found.replace("of the month", f"of {months[0]}")
    return f"{found} in {months[0]}" if len(months) == 1 and not found else f"{found}, only in {_list(months)}"


def _weekdays(found: Collection[_DayOfWeek]) -> set[_DayOfWeek]:
    """Return days of the week with Sunday as 0, not 7, and without those of a month that a plain one includes."""
    plain = {each % 7 for each in found if isinstance(each, int)}
    nth = {(each[0] % 7, each[1]) for each in found if isinstance(each, tuple) and each[0] % 7 not in plain}
    return plain | nth


def _names(weekdays: Collection[_DayOfWeek], article: str = "") -> list[str]:
    if article and weekdays == _WEEKDAYS:
        return [f"{article}weekday"]
    plain = sorted((each for each in weekdays if isinstance(each, int)), key=lambda each: (each - 1) % 7)
    nth = sorted(each for each in weekdays if isinstance(each, tuple))
    return [article + calendar.day_name[(each - 1) % 7] for each in plain] + [
        f"the {'last' if which == CronSim.LAST else _ordinal(which)} {calendar.day_name[(day - 1) % 7]} of the month"
        for day, which in nth
    ]


def _numbered(days: Collection[int]) -> str | None:
    """Return ``the 1st, 15th and last day``; None if that takes too many words."""
    plain = sorted(each for each in days if each > 0)
    last = ["last day"] * (CronSim.LAST in days) + ["last weekday"] * (CronSim.LAST_WEEKDAY in days)
    if len(plain) > 2 and _step(plain) == 1:
        return f"the {_list([f'{_ordinal(plain[0])} to {_ordinal(plain[-1])}', *last])}"
    if plain == list(range(1, 32, 2)) and not last:
        return "odd days"
    if plain == list(range(2, 32, 2)) and not last:
        return "even days"
    return f"the {_list([*map(_ordinal, plain), *last])}" if len(plain) <= _MOST_LISTED else None


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _list(parts: Iterable[str], word: str = "and") -> str:
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last
