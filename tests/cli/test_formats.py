"""Times as people write and read them."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from delayq.cli.formats import show_moment

from delayq.errors import InvalidTime
from delayq.model.show import show_duration
from delayq.model.units import parse_duration, parse_moment

LAST_SECOND = 253_402_300_799


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86_400),
        ("2w", 1_209_600),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 93_784.005),
        ("1.5h", 5400),
        ("0", 0),
        ("0s", 0),
        ("90", 90),
        ("0.07", 0.07),
        (" 10s ", 10),
        (str(LAST_SECOND), LAST_SECOND),
    ],
)
def test_duration_is_read(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-5",
        "-5s",
        "+5",
        "nan",
        "inf",
        "1e3",
        "5 s",
        "10x",
        "s",
        "5s5s",
        "30m1h",
        "1,5s",
        ".5",
        "5.",
        "٣s",
        "1h 30m",
    ],
)
def test_bad_duration_is_refused_with_its_text(text: str):
    with pytest.raises(InvalidTime) as raised:
        parse_duration(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("text", [str(LAST_SECOND + 1), "9999999w", "9" * 400, "9" * 400 + "h"])
def test_duration_past_the_year_9999_is_refused(text: str):
    with pytest.raises(InvalidTime, match="past the year 9999"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-12-24T18:00+01:00", dt.datetime(2026, 12, 24, 17, tzinfo=dt.UTC)),
        ("2026-12-24T18:00:00.250Z", dt.datetime(2026, 12, 24, 18, 0, 0, 250_000, tzinfo=dt.UTC)),
        ("2026-12-24 18:00-0500", dt.datetime(2026, 12, 24, 23, tzinfo=dt.UTC)),
    ],
)
def test_moment_is_read(text: str, utc: dt.datetime):
    assert parse_moment(text) == utc


@pytest.mark.parametrize("text", ["2026-12-24T18:00", "2026-12-24"])
def test_moment_without_a_zone_is_refused(text: str):
    with pytest.raises(InvalidTime, match="no time zone: add an offset"):
        parse_moment(text)


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01T00:00Z", "2026-02-30T00:00Z", "18:00Z", "1e9"])
def test_bad_moment_is_refused(text: str):
    with pytest.raises(InvalidTime, match="is not a date and time"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.12, "120ms"),
        (9.84, "9.8s"),
        (10, "10s"),
        (59.97, "60s"),
        (90, "1m 30s"),
        (5400, "1h 30m"),
        (7200, "2h"),
        (93_784, "1d 2h"),
    ],
)
def test_duration_is_shown_in_two_units(seconds: float, text: str):
    assert show_duration(seconds) == text


def test_moment_is_shown_with_its_distance():
    now = dt.datetime.now(dt.UTC)  # units that a pause between the two does not change
    assert show_moment(now + dt.timedelta(days=2, minutes=30)).startswith("in 2d (")
    assert show_moment(now - dt.timedelta(days=2, minutes=10)).startswith("2d ago (")
    assert show_moment(now + dt.timedelta(days=458, hours=15)).startswith("in 1y 94d (")
    assert show_moment(now - dt.timedelta(days=730)).startswith("2y ago (")


def test_last_moment_of_all_is_shown_in_every_zone(monkeypatch: pytest.MonkeyPatch):
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        shown = show_moment(last)
    time.tzset()
    assert shown.endswith(" (9999-12-31 23:59:59.999+00:00)")
