from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import pytest

from delayq import backoff
from delayq.errors import InvalidTime


def first(wait: Callable[[int], float], count: int = 6) -> list[float]:
    return [wait(attempt) for attempt in range(1, count + 1)]


def test_fixed_waits_the_same_time():
    assert first(backoff.fixed(2.5)) == [2.5] * 6
    assert first(backoff.fixed(dt.timedelta(minutes=1)), 2) == [60, 60]


def test_linear_waits_a_step_more_each_time_up_to_its_maximum():
    assert first(backoff.linear(base=1, step=2, maximum=6)) == [1, 3, 5, 6, 6, 6]
    assert first(backoff.linear(), 3) == [1, 2, 3]


def test_exponential_waits_a_factor_longer_each_time_up_to_its_maximum():
    assert first(backoff.exponential(base=1, factor=3, maximum=30, jitter=0)) == [1, 3, 9, 27, 30, 30]


def test_exponential_never_overflows():
    assert backoff.exponential(jitter=0)(100_000) == 3600


def test_jitter_moves_each_wait_by_its_share_at_most_and_not_always_alike():
    wait = backoff.exponential(base=10, factor=1, jitter=0.2)
    waits = [wait(1) for _ in range(200)]
    assert all(8 <= each <= 12 for each in waits)
    assert min(waits) < 9
    assert max(waits) > 11


def test_sequence_waits_its_times_in_turn_and_then_the_last():
    assert first(backoff.sequence([1, dt.timedelta(seconds=10), 60]), 5) == [1, 10, 60, 60, 60]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: backoff.fixed(-1), r"seconds -1 is not 0 or more"),
    (lambda: backoff.fixed(math.nan), r"seconds nan is not 0 or more"),
    (lambda: backoff.linear(base=-1), r"base -1 is not"),
    (lambda: backoff.linear(step=-1), r"step -1 is not"),
    (lambda: backoff.linear(maximum=math.inf), r"maximum inf leads past"),
    (lambda: backoff.exponential(base="1"), r"base '1' is not a time"),  # type: ignore[arg-type]
    (lambda: backoff.exponential(factor=0.9), r"factor 0.9 is not 1 or more"),
    (lambda: backoff.exponential(factor=math.nan), r"factor nan is not 1 or more"),
    (lambda: backoff.exponential(jitter=1.1), r"jitter 1.1 is not between 0 and 1"),
    (lambda: backoff.exponential(jitter=-0.1), r"jitter -0.1 is not between 0 and 1"),
    (lambda: backoff.sequence([]), r"must not be empty: give at least one"),
    (lambda: backoff.sequence([1, -1]), r"wait -1 is not"),
]


@pytest.mark.parametrize(("make", "why"), WRONG)
def test_wrong_setting_is_refused_with_its_value(make: Callable[[], Any], why: str):
    with pytest.raises(InvalidTime, match=why):
        make()


def test_default_retries_take_about_twenty_minutes_with_jitter():
    for attempt, seconds in enumerate([10, 30, 90, 270, 810, 2430, 3600, 3600], start=1):
        waits = {backoff.DEFAULT_BACKOFF(attempt) for _ in range(50)}
        assert len(waits) > 1
        assert all(0.9 * seconds <= wait <= 1.1 * seconds for wait in waits)
    assert backoff.DEFAULT_RETRIES == 5
