"""Schedules in words: the sentence is read back, and must name exactly the times at which the schedule fires."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from functools import cache
from itertools import product

import pytest

from delayq.model.cron_expression import recurrence
from delayq.model.units import from_ms, timestamp_ms
from delayq.web.schedule_words import words

FIRST = dt.datetime(2028, 1, 1, tzinfo=dt.UTC)  # a leap year
DATES = [FIRST.date() + dt.timedelta(days=each) for each in range(91)]  # to the end of March
DAYS = ["*", "1", "1,15", "10-16", "*/2", "2-30/2", "*/5", "1-31", "L", "LW", "1,L"]
WEEKDAYS = ["*", "mon-fri", "5", "7", "0-6", "*/2", "6,0", "1,3,5", "2#2", "5L", "1,1#3,tue#1"]
MONTHS = ["*", "2", "2,mar"]
MINUTES = ["*", "0", "30", "*/15", "*/7", "*/45", "5/15", "0,30", "5,10,20", "10-20", "59", "*/1"]
HOURS = ["*", "0", "9", "9-17", "*/2", "*/5", "8-18/2", "9,17", "0,12", "1,2,5", "22-23", "*/1"]


@pytest.mark.parametrize(
    ("when", "timezone", "expected"),
    [
        ("0 9 * * 1-5", "Europe/Berlin", "Every weekday at 09:00, Europe/Berlin"),
        ("0 9 1 * mon-fri", "UTC", "At 09:00 on the 1st of the month or on any weekday, UTC"),
        ("0 9 1 * 0-6", "UTC", "At 09:00 every day, UTC"),
        ("*/15 * * * *", "UTC", "Every 15 minutes, UTC"),
        ("*/15 9-17 * * 1-5", "UTC", "Every 15 minutes from 09:00 to 17:45 on weekdays, UTC"),
        ("*/7 * * * *", "UTC", "Every 7 minutes of each hour, from :00 to :56, UTC"),
        ("0 */6 * * *", "UTC", "Every 6 hours, UTC"),
        ("0 */5 * * *", "UTC", "Every 5 hours from 00:00 to 20:00, UTC"),
        ("@hourly", "UTC", "Every hour, UTC"),
        ("30 * * * *", "UTC", "Every hour at :30, UTC"),
        ("* * * * *", "UTC", "Every minute, UTC"),
        ("*/10 * * * * *", "UTC", "Every 10 seconds, UTC"),
        ("30 0 3 * * *", "UTC", "At 03:00:30 every day, UTC"),
        ("@daily", "UTC", "At 00:00 every day, UTC"),
        ("0 3 * 6 *", "UTC", "At 03:00 every day in June, UTC"),
        ("every 1h 30m", "Europe/Berlin", "Every 1h 30m"),
        ("0 12 L * *", "UTC", "At 12:00 on the last day of the month, UTC"),
        ("5 4 1,15 * 5", "UTC", "At 04:05 on the 1st and 15th of the month or on any Friday, UTC"),
        ("5 4 */2 * 5", "UTC", "At 04:05 on odd days of the month if it is a Friday, UTC"),
        ("0 0 31 12 *", "UTC", "At 00:00 on the 31st of December, UTC"),
        ("0 0 21,22,23,11 * *", "UTC", "At 00:00 on the 11th, 21st, 22nd and 23rd of the month, UTC"),
        ("0 10 * * 2#2", "UTC", "At 10:00 on the 2nd Tuesday of the month, UTC"),
        ("1,5,7,9,11,13,15,17,19 3 * * *", "UTC", "1,5,7,9,11,13,15,17,19 3 * * *, UTC"),
        ("of a newer delayq", "UTC", "of a newer delayq, UTC"),
    ],
)
def test_schedule_is_described_in_words(when: str, timezone: str, expected: str):
    assert words(when, timezone) == expected


def test_sentence_names_the_days_on_which_the_schedule_fires():
    wrong, silent = [], 0
    for day, month, weekday in product(DAYS, MONTHS, WEEKDAYS):
        when = f"0 9 {day} {month} {weekday}"
        text = words(when, "UTC").removesuffix(", UTC")
        silent += text == when
        fires = {at.date() for at in fired(when, len(DATES))}
        if text != when and fires != days_in(text):
            wrong.append((when, text))
    assert wrong == []
    assert silent < len(DAYS) * len(MONTHS) * len(WEEKDAYS) / 20


def test_sentence_names_the_times_at_which_the_schedule_fires():
    wrong, silent = [], 0
    for minute, hour in product(MINUTES, HOURS):
        when = f"{minute} {hour} * * *"
        text = words(when, "UTC").removesuffix(", UTC")
        silent += text == when
        if text != when and [at.hour * 60 + at.minute for at in fired(when, 1)] != times_in(text):
            wrong.append((when, text))
    assert wrong == []
    assert silent <= len(MINUTES) * len(HOURS) / 3  # such as */7 of every fifth hour


def fired(when: str, days: int) -> list[dt.datetime]:
    """Return when a schedule fires in the first days of the year."""
    slots, found, at = recurrence(when), [], timestamp_ms(FIRST) - 1
    end = timestamp_ms(FIRST + dt.timedelta(days=days))
    while (following := slots.after(at)) is not None and following < end:
        found.append(from_ms(at := following))
    return found


def days_in(text: str) -> set[dt.date]:
    """Read which days a sentence names, as a reader would."""
    text = re.sub(r"^(?:At|Every weekday at) 09:00", lambda match: "on weekdays" * ("weekday" in match[0]), text)
    text, _, months = text.partition(", only in ")
    if match := re.fullmatch(r"(.* of|.*every day) (?:in )?([A-Z]\w+)", text):
        text, months = match[1], match[2]
    named = re.findall(r"[A-Z]\w+", months) or calendar.month_name[1:]
    text = text.strip().removesuffix(" of the month").removesuffix(" of")
    either, _, other = text.partition(" or on ")
    first, _, condition = either.partition(" if it is ")
    found = days(first) & (days(condition) if condition else {*DATES}) | (days(other) if other else set())
    return {each for each in found if calendar.month_name[each.month] in named}


@cache
def days(text: str) -> set[dt.date]:
    text = re.sub(r"^on |\bthe |\bany |\ba | of the month", "", text)
    parts = re.split(r", | and | or ", text)
    return {date for date in DATES if text == "every day" or any(is_one(each, date) for each in parts)}


def is_one(text: str, date: dt.date) -> bool:
    last = calendar.monthrange(date.year, date.month)[1]
    name = calendar.day_name[date.weekday()]
    weekdays_left = [each for each in range(date.day + 1, last + 1) if date.replace(day=each).weekday() < 5]
    if match := re.fullmatch(r"(\d+)\w\w to (\d+)\w\w", text):
        return int(match[1]) <= date.day <= int(match[2])
    if match := re.fullmatch(r"(\d)\w\w (\w+day)", text):
        return name == match[2] and (date.day - 1) // 7 + 1 == int(match[1])
    if match := re.fullmatch(r"last (\w*day)", text):
        is_last = {"weekday": date.weekday() < 5 and not weekdays_left, "day": date.day == last}
        return is_last.get(match[1], name == match[1] and date.day + 7 > last)
    known = {"odd days": date.day % 2 == 1, "even days": date.day % 2 == 0, "weekday": date.weekday() < 5}
    known["weekdays"] = known["weekday"]
    return known.get(text, text == name or re.sub(r"\D", "", text) == str(date.day))


def times_in(text: str) -> list[int]:
    """Read which minutes of the day a sentence names, as a reader would."""
    if text.startswith("At "):
        return [minutes(each) for each in re.findall(r"\d\d:\d\d", text)]
    if match := re.fullmatch(r"Every hour at (.*)", text):
        return [hour * 60 + int(each) for hour in range(24) for each in re.findall(r":(\d\d)", match[1])]
    step = re.match(r"Every (?:(\d+) )?(minute|hour)", text)
    assert step is not None, text
    every = int(step[1] or 1) * (60 if step[2] == "hour" else 1)
    if match := re.search(r"of each hour, from :(\d\d) to :(\d\d)$", text):
        return [hour * 60 + each for hour in range(24) for each in range(int(match[1]), int(match[2]) + 1, every)]
    if match := re.search(r"from (\S+) to (\S+)$", text):
        return list(range(minutes(match[1]), minutes(match[2]) + 1, every))
    assert 1440 % every == 0, text
    return list(range(0, 1440, every))


def minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])
