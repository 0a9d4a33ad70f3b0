from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from delayq.errors import InvalidInput
from delayq.model.configuration import Configuration, changes, configured, wishes
from delayq.model.rate_text import DAY_MS, parse_rate, per_second, show_rate


@pytest.mark.parametrize(
    ("text", "read", "shown"),
    [
        ("100/s", (100, 1000), "100/s"),
        ("1/1s", (1, 1000), "1/s"),
        ("5/10s", (5, 10_000), "5/10s"),
        ("20/100ms", (20, 100), "20/100ms"),
        ("1/ms", (1, 1), "1/ms"),
        ("9/min", (9, 60_000), "9/min"),
        ("9/m", (9, 60_000), "9/min"),
        ("9/90s", (9, 90_000), "9/90s"),
        ("500/h", (500, 3_600_000), "500/h"),
        ("500/60min", (500, 3_600_000), "500/h"),
        ("100000/d", (100_000, DAY_MS), "100000/d"),
        ("100000/24h", (100_000, DAY_MS), "100000/d"),
    ],
)
def test_rate_is_read_and_shown(text: str, read: tuple[int, int], shown: str):
    assert parse_rate(text) == read
    assert show_rate(*read) == shown
    assert parse_rate(shown) == read


@pytest.mark.parametrize(
    "rate",
    [
        *("", "100", "100/", "/s", "0/s", "-1/s", "1.5/s", "1/0s", "1/-1s", "100001/s", "1/2d", "1/86401s", "1/week"),
        *(
            "1/mi",
            "100 / s",
            "100/s ",
            "1e3/s",
            "\u0661/s",
            "1/s\n",
            "9999999999/s",
            "1/9999999999s",
            100,
            1.5,
            True,
            b"1/s",
        ),
    ],
    ids=repr,
)
def test_invalid_rate_is_refused_with_the_remedy(rate: Any):
    with pytest.raises(InvalidInput, match='write it as "100/s"') as refused:
        parse_rate(rate)
    assert repr(rate) in str(refused.value)


@pytest.mark.parametrize("count", [0, -1, 1_000_001, True, 1.0, "5", b"5"], ids=repr)
@pytest.mark.parametrize("what", ["concurrency", "concurrency_per_key"])
def test_invalid_number_of_messages_is_refused(what: str, count: Any):
    with pytest.raises(InvalidInput, match=f"{what} {count!r} is not a whole number from 1 to 1,000,000; use None"):
        changes(**{what: count})


def test_omitted_setting_is_unchanged_and_none_removes_it():
    assert changes() == {}
    assert changes(rate=UNSET, concurrency=5, concurrency_per_key=None) == {"concurrency": 5, "per_key": None}
    assert changes(rate=None) == {"rate": None, "period_ms": None}
    assert changes(rate="5/10s") == {"rate": 5, "period_ms": 10_000}


def test_client_does_not_store_settings_that_are_none():
    assert wishes(rate=None, concurrency=None) == {}
    assert wishes(rate="5/s", concurrency=None, concurrency_per_key=2) == {"rate": 5, "period_ms": 1000, "per_key": 2}


@pytest.mark.parametrize("values", [[None] * 5, [b"5", None, b"", b"x", b"-"], [None, b"1000", b"-1", b"1.5", b""]])
def test_partly_stored_or_invalid_settings_are_ignored(values: list[bytes | None]):
    assert configured(values) == Configuration()


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (5, 5),
        (0.5, 0.5),
        ("7", 7),
        ("100/s", 100),
        ("30/m", 0.5),
        ("5/10s", 0.5),
        ("20/100ms", 200),
        ("1.5/min", 0.025),
    ],
)
def test_pace_is_a_number_or_a_rate(rate: Any, expected: float):
    assert per_second(rate) == pytest.approx(expected)


@given(st.integers(1, 100_000), st.integers(1, 86_400_000))
def test_every_rate_is_a_valid_pace(most: int, period_ms: int):
    assert per_second(show_rate(most, period_ms)) == pytest.approx(most * 1000 / period_ms)


@pytest.mark.parametrize("rate", [0, -1, math.nan, True, None, "", "/s", "5/", "0/s", "5/0s", "5/y", "5/-1s", b"1/s"])
def test_invalid_pace_is_refused_with_the_remedy(rate: Any):
    with pytest.raises(InvalidInput, match='write it as 100, "100/s", "5/10s" or "30/min"'):
        per_second(rate)


def test_number_of_dead_letters_is_stored_and_read():
    assert changes(max_dead=10_000) == {"max_dead": 10_000}
    assert changes(max_dead=None) == {"max_dead": None}
    assert configured([*[None] * 7, b"10000"]) == Configuration(max_dead=10_000)
    bad: list[Any] = [0, -1, 1.5, True, "9", 1_000_001]
    for most in bad:
        with pytest.raises(InvalidInput, match=f"max_dead {most!r} is not a whole number from 1 to 1,000,000"):
            changes(max_dead=most)
