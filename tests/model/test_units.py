from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.errors import InvalidTime
from delayq.model.units import MAX_LEASE_MS, MAX_TIME_MS, delay_ms, from_ms, lease_ms, milliseconds, timestamp_ms

UTC = dt.UTC
BERLIN = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1, 1000),
        (0.001, 1),
        (0.0001, 1),
        (0.07, 70),
        (0.1 + 0.2, 300),
        (1e-10, 0),
        (dt.timedelta(), 0),
        (dt.timedelta(minutes=2), 120_000),
        (dt.timedelta(microseconds=1), 1),
        (MAX_TIME_MS / 1000, MAX_TIME_MS),
    ],
)
def test_seconds_become_whole_milliseconds_rounded_up(seconds: Any, ms: int):
    assert milliseconds(seconds) == ms


@given(st.integers(0, 10**12))
def test_whole_milliseconds_are_unchanged(ms: int):
    assert milliseconds(ms / 1000) == ms
    assert milliseconds(dt.timedelta(milliseconds=ms)) == ms


@given(st.floats(0, 10**9))
def test_delay_is_never_cut_short(seconds: float):
    assert milliseconds(seconds) >= seconds * 1000 - max(1e-6, math.ulp(seconds * 1000))  # as exact as a float can be


NO_TIMES = [
    (-1, "is not 0 or more seconds"),
    (-1e-9, "is not 0 or more seconds"),
    (dt.timedelta(microseconds=-1), "is not 0 or more seconds"),
    (math.nan, "is not 0 or more seconds"),
    (-math.inf, "is not 0 or more seconds"),
    (math.inf, "is past the year 9999"),
    (MAX_TIME_MS, "is past the year 9999"),
    (dt.timedelta.max, "is past the year 9999"),
    ("5", "is not a time: give a number of seconds or a timedelta"),
    (None, "is not a time: give a number of seconds or a timedelta"),
    (True, "is not a time: give a number of seconds or a timedelta"),
    (dt.datetime(2026, 1, 1, tzinfo=UTC), "is not a time: give a number of seconds or a timedelta"),
]


@pytest.mark.parametrize(("value", "why"), NO_TIMES)
def test_invalid_duration_is_refused_with_its_value(value: Any, why: str):
    with pytest.raises(InvalidTime) as caught:
        milliseconds(value, "patience")
    assert str(caught.value) == f"patience {value!r} {why}"


def test_delay_that_ends_after_the_year_9999_is_refused():
    eight_thousand_years = 8000 * 365.25 * 86_400
    assert milliseconds(eight_thousand_years)
    with pytest.raises(InvalidTime, match=r"delay .* is past the year 9999"):
        delay_ms(eight_thousand_years)


@pytest.mark.parametrize(
    ("lease", "ms"), [(0.001, 1), (30, 30_000), (86_400, MAX_LEASE_MS), (dt.timedelta(days=1), MAX_LEASE_MS)]
)
def test_lease_is_between_a_millisecond_and_a_day(lease: Any, ms: int):
    assert lease_ms(lease) == ms


@pytest.mark.parametrize("lease", [0, 86_400.001, dt.timedelta(days=2)])
def test_lease_out_of_range_is_refused(lease: Any):
    with pytest.raises(InvalidTime, match=r"lease .* is not between 0.001 and 86400 seconds"):
        lease_ms(lease)


@pytest.mark.parametrize(
    ("at", "ms"),
    [
        (dt.datetime(1970, 1, 1, tzinfo=UTC), 0),
        (dt.datetime(1970, 1, 1, 1, tzinfo=BERLIN), 0),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 1001, tzinfo=UTC), 2),
        (dt.datetime(2026, 12, 24, 18, tzinfo=BERLIN), 1_798_131_600_000),
        (dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), MAX_TIME_MS),
    ],
)
def test_aware_datetime_becomes_milliseconds_rounded_up(at: dt.datetime, ms: int):
    assert timestamp_ms(at) == ms


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (dt.datetime(2026, 12, 24, 18), r"at=2026-12-24T18:00:00 is naive: .* at.astimezone\(\) for local"),  # noqa: DTZ001
        (dt.datetime(1969, 12, 31, tzinfo=UTC), r"is not between 1970 and the year 9999"),
        (dt.datetime.min.replace(tzinfo=BERLIN), r"is not between 1970 and the year 9999"),
        (dt.datetime.max.replace(tzinfo=UTC), r"is not between 1970 and the year 9999"),
        (
            dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-12))),
            r"is not between 1970 and the year 9999",
        ),
        ("2026-12-24", r"at='2026-12-24' is not a datetime"),
        (1_798_131_600, r"at=1798131600 is not a datetime"),
        (dt.date(2026, 12, 24), r"is not a datetime"),
    ],
)
def test_invalid_time_is_refused_with_its_value(at: Any, why: str):
    with pytest.raises(InvalidTime, match=why):
        timestamp_ms(at)


@given(st.integers(0, MAX_TIME_MS))
def test_milliseconds_survive_a_round_trip_through_datetime(ms: int):
    assert timestamp_ms(from_ms(ms)) == ms


def test_fraction_of_a_millisecond_in_server_time_is_dropped():
    assert from_ms(1000.999) == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert from_ms(0).tzinfo is UTC
