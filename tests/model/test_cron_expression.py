"""Cron expressions in time zones, compared with a model of Debian's cron."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Iterator

import pytest

from delayq.errors import InvalidInput
from delayq.model import time_zones
from delayq.model.cron_expression import ALIASES, recurrence
from delayq.model.time_zones import check_zone
from tests.harness.debian_cron import Job, runs

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "America/Santiago",  # at midnight
    "Asia/Kolkata",  # never
)
ODD_ZONES = ("America/Havana", "Antarctica/Troll", "Africa/Casablanca", "Atlantic/Azores", "Africa/Cairo")
WILD = ("* * * * *", "*/5 * * * *", "0 * * * *", "*/5 2 * * *", "*/30 0 * * *", "30 */2 * * *", "*/10 0-3 * * *")
FIXED = (
    "0 0 * * *",
    "30 2 * * *",
    "15,45 2 * * *",
    "0 0,1,2,3 * * *",
    "5-55/10 0-2 * * *",
    "30 0 1 * *",
    "0 2 * * sun",
)
ODD = ("0 3 * * 1-5", "30 12 29 feb *", "0 0 13 * fri", "7 4,16 1,15 1-11/2 mon-wed", "0 12 */10 * mon")
HOUR = dt.timedelta(hours=1)
YEARS = (dt.datetime(2021, 1, 1, tzinfo=dt.UTC), dt.datetime(2031, 1, 1, tzinfo=dt.UTC))


def ms(moment: dt.datetime) -> int:
    return int(moment.timestamp()) * 1000


def slots(when: str, zone: str, start: dt.datetime, end: dt.datetime) -> Iterator[dt.datetime]:
    """Each slot from `start` until before `end`, found one after the other, as a schedule does."""
    found = recurrence(when, zone)
    slot = found.after(ms(start) - 1)
    while slot is not None and slot < ms(end):
        yield dt.datetime.fromtimestamp(slot / 1000, dt.UTC)
        slot = found.after(slot)


def changes(zone: str, start: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
    """When the clock is set forward or back, rounded down to the hour before."""
    info = zoneinfo.ZoneInfo(zone)
    hours = (start + number * HOUR for number in range(int((end - start) / HOUR)))
    return [each for each in hours if each.astimezone(info).utcoffset() != (each + HOUR).astimezone(info).utcoffset()]


@pytest.mark.parametrize("zone", [*ZONES[:4], *ODD_ZONES])
def test_both_clock_changes_are_handled_as_by_debian_cron(zone: str):
    found = changes(zone, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2025, 1, 1, tzinfo=dt.UTC))
    assert len(found) >= 2
    for change in found:
        start, end = change - 5 * HOUR, change + 6 * HOUR
        for when in (*WILD, *FIXED):
            expected = list(runs(Job(when), zoneinfo.ZoneInfo(zone), start, end))
            assert list(slots(when, zone, start, end)) == expected, f"{when} at {change}"


def by_the_day(when: str, zone: str) -> Iterator[dt.datetime]:
    """The slots of ten years: from the model of cron on days with a clock change, from the fields on all others."""
    job, info = Job(when), zoneinfo.ZoneInfo(zone)
    times = [dt.time(hour, minute) for hour in sorted(job.hours) for minute in sorted(job.minutes)]
    day = YEARS[0].date()
    while day < YEARS[1].date():
        start, end = (
            dt.datetime.combine(each, dt.time(12), tzinfo=info).astimezone(dt.UTC) - 12 * HOUR
            for each in (day, day + dt.timedelta(days=1))
        )
        if (end - start) != 24 * HOUR or start.astimezone(info).time() != dt.time():
            yield from runs(job, info, start, end)
        elif job.is_on(day):
            offset = info.utcoffset(dt.datetime.combine(day, dt.time(12)))
            assert offset is not None
            yield from (dt.datetime.combine(day, time, tzinfo=dt.UTC) - offset for time in times)
        day += dt.timedelta(days=1)


@pytest.mark.parametrize(
    "zone", [zone if "Lord_Howe" in zone else pytest.param(zone, marks=pytest.mark.full) for zone in ZONES]
)
@pytest.mark.parametrize("when", ["30 2 * * *", *ODD])
def test_each_slot_of_ten_years_comes_once(when: str, zone: str):
    start, end = (each.replace(tzinfo=zoneinfo.ZoneInfo(zone)).astimezone(dt.UTC) for each in YEARS)
    expected = [each for each in by_the_day(when, zone) if start <= each < end]
    assert len(expected) >= 2
    assert list(slots(when, zone, start, end)) == expected


@pytest.mark.full
@pytest.mark.parametrize("zone", ZONES)
def test_minutely_schedule_has_every_minute_of_ten_years(zone: str):
    """Check the hours around each clock change and one hour a month; tests/harness/decade.py checks them all."""
    months = [YEARS[0] + number * 721 * HOUR for number in range(int((YEARS[1] - YEARS[0]) / (721 * HOUR)))]
    for around in [*changes(zone, *YEARS), *months]:
        start, end = around - HOUR / 2, around + 2 * HOUR
        minutes = [start + number * dt.timedelta(minutes=1) for number in range(150)]
        assert list(slots("* * * * *", zone, start, end)) == minutes


# -- valid expressions -------------------------------------------------------------------------------------------------

MONDAY = dt.datetime(2026, 6, 1, 12, 0, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("when", "first"),
    [
        ("*/5 * * * *", "2026-06-01 12:05:00"),
        ("5 4 * * sun", "2026-06-07 04:05:00"),
        ("0 22 * * mon-fri", "2026-06-01 22:00:00"),
        ("0 0 1 JAN,Jul *", "2026-07-01 00:00:00"),
        ("0-30/10 12 * * *", "2026-06-01 12:10:00"),
        ("0 0 * * 7", "2026-06-07 00:00:00"),
        ("0 0 L * *", "2026-06-30 00:00:00"),
        ("*/10 * * * * *", "2026-06-01 12:00:40"),
        ("15 30 3 * * *", "2026-06-02 03:30:15"),
        ("@hourly", "2026-06-01 13:00:00"),
        ("@daily", "2026-06-02 00:00:00"),
        ("@midnight", "2026-06-02 00:00:00"),
        ("@weekly", "2026-06-07 00:00:00"),
        ("@Monthly", "2026-07-01 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00"),
        ("@annually", "2027-01-01 00:00:00"),
        ("every 90s", "2026-06-01 12:01:30"),
        ("every 1h 30m", "2026-06-01 13:30:00"),
        ("every 2d", "2026-06-02 00:00:00"),
        (" every  45 s ", "2026-06-01 12:00:45"),
    ],
)
def test_expression_says_when(when: str, first: str):
    found = recurrence(when).after(ms(MONDAY))
    assert found is not None
    assert dt.datetime.fromtimestamp(found / 1000, dt.UTC) == dt.datetime.fromisoformat(f"{first}+00:00")


def test_every_alias_is_tested():
    assert {"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"} == set(ALIASES)


def test_next_slot_is_strictly_after_the_given_time():
    slot = ms(MONDAY.replace(second=0))
    assert recurrence("* * * * *").after(slot) == slot + 60_000
    assert recurrence("* * * * *").after(slot - 1) == slot
    assert recurrence("every 60s").after(slot) == slot + 60_000
    assert recurrence("every 60s").after(slot - 1) == slot


def test_seconds_follow_both_clock_changes_as_minutes_do():
    back = dt.datetime(2026, 10, 25, 0, tzinfo=dt.UTC)  # 02:00 in Berlin, the first time
    wild = list(slots("30 0 2-3 * * *", "Europe/Berlin", back, back + 3 * HOUR))
    assert [each.isoformat()[11:19] for each in wild] == ["00:00:30", "02:00:30"]
    wild = list(slots("30 */30 * * * *", "Europe/Berlin", back, back + 2 * HOUR))
    assert [each.isoformat()[11:19] for each in wild] == ["00:00:30", "00:30:30", "01:00:30", "01:30:30"]
    forward = dt.datetime(2026, 3, 29, 0, tzinfo=dt.UTC)  # 01:00 in Berlin
    fixed = list(slots("30 15,45 2 * * *", "Europe/Berlin", forward, forward + 3 * HOUR))
    assert [each.isoformat()[11:19] for each in fixed] == ["01:00:00"]


@pytest.mark.parametrize(
    ("when", "remedy"),
    [
        ("", "try"),
        ("   ", "try"),
        (None, "try"),
        (5, "try"),
        ("* " * 200, "try"),
        ("* * * *", "five fields"),
        ("* * * * * * *", "five fields"),
        ("61 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("a b c d e", "five fields"),
        ("0 0 31 2 *", "day-of-month"),
        ("* * * * 5#2/3", "five fields"),
        ("٣ * * * *", "minute"),
        ("@reboot", "@daily"),
        ("every", "every 90s"),
        ("every 0s", "every 90s"),
        ("every 500ms", "every 90s"),
        ("every 367d", "366 days"),
        ("every -5s", "every 90s"),
    ],
)
def test_error_for_an_invalid_expression_says_what_to_write(when: str, remedy: str):
    with pytest.raises(InvalidInput, match=remedy):
        recurrence(when)


@pytest.mark.parametrize(
    ("zone", "remedy"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("europe/berlin", "did you mean 'Europe/Berlin'"),
        ("Berlin", "did you mean 'Europe/Berlin'"),
        ("new york", "did you mean 'America/New_York'"),
        ("utc", "did you mean 'UTC'"),
        ("CST", "use a place such as 'America/Chicago' or 'Asia/Shanghai'"),
        ("PST", "use a place such as 'America/Los_Angeles'"),
        ("GMT+2", "use a place such as 'Europe/Berlin', or 'Etc/GMT-2' for always 2 hours ahead of UTC"),
        ("UTC-05:00", "or 'Etc/GMT\\+5' for always 5 hours behind UTC"),
        ("+02:00", "or 'Etc/GMT-2'"),
        ("UTC+99", "use a name"),
        ("W. Europe Standard Time", "Windows uses; use an IANA name such as 'Europe/Berlin'"),
        ("Pacific Standard Time", "such as 'America/Los_Angeles'"),
        ("Tonga Standard Time", "Windows uses"),
        ("", "use a name"),
        ("../etc/passwd", "use a name"),
    ],
)
def test_error_for_an_unknown_time_zone_suggests_a_known_one(zone: str, remedy: str):
    with pytest.raises(InvalidInput, match=f"unknown timezone '{re.escape(zone)}': .*{remedy}"):
        check_zone(zone)
    with pytest.raises(InvalidInput, match=remedy):
        recurrence("* * * * *", zone)


@pytest.mark.parametrize(
    ("zone", "remedy"),
    [
        ("localtime", "not the same on every machine"),
        ("posixrules", "not the same on every machine"),
        ("Factory", "not the same on every machine"),
        ("right/Europe/Berlin", "not every machine has it; use 'Europe/Berlin'"),
        ("posix/Asia/Tokyo", "not every machine has it; use 'Asia/Tokyo'"),
    ],
)
def test_time_zone_that_other_machines_do_not_have_is_refused_for_new_schedules(zone: str, remedy: str):
    with pytest.raises(InvalidInput, match=remedy):
        check_zone(zone)


def test_every_suggested_place_is_known():
    places = {*time_zones._WINDOWS.values(), *re.split(r"', '|' or '", "' or '".join(time_zones._SHORT.values()))}
    assert places <= zoneinfo.available_timezones()


@pytest.mark.parametrize("zone", [5, None, "a\0b", "Europe", "x" * 5000])
def test_invalid_time_zone_is_refused(zone):
    with pytest.raises(InvalidInput, match="timezone"):
        recurrence("* * * * *", zone)
    with pytest.raises(InvalidInput, match="timezone"):
        check_zone(zone)


def test_schedule_ends_with_the_calendar():
    assert recurrence("0 0 1 1 *", "Europe/Berlin").after(253_402_300_799_000) is None
