from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from delayq import backoff
from delayq.errors import InvalidInput, InvalidTime
from delayq.types import Backoff


def first(wait: Callable[[int], float], count: int = 6) -> list[float]:
    return [wait(attempt) for attempt in range(1, count + 1)]


def test_fixed_waits_the_same_time():
    assert first(backoff.fixed(2.5)) == [2.5] * 6
    assert first(backoff.fixed(dt.timedelta(minutes=1)), 2) == [60, 60]


def test_linear_adds_a_step_each_time_up_to_its_maximum():
    assert first(backoff.linear(base=1, step=2, maximum=6)) == [1, 3, 5, 6, 6, 6]
    assert first(backoff.linear(), 3) == [1, 2, 3]


def test_exponential_multiplies_the_wait_each_time_up_to_its_maximum():
    assert first(backoff.exponential(base=1, factor=3, maximum=30, jitter=0)) == [1, 3, 9, 27, 30, 30]


def test_exponential_never_overflows():
    assert backoff.exponential(jitter=0)(100_000) == 3600


HUGE = (400_000_000, 10**15, 10**400, 10**5000)


@pytest.mark.parametrize("attempt", HUGE, ids=range(len(HUGE)))
@pytest.mark.parametrize(
    "wait",
    [
        backoff.fixed(1),
        backoff.linear(),
        backoff.linear(step=0),
        backoff.exponential(base=10, factor=3),
        backoff.exponential(factor=1, jitter=1),
        backoff.exponential(factor=1e300, maximum=10),
        backoff.sequence([1, 10, 60]),
        backoff.DEFAULT_BACKOFF,
    ],
)
def test_wait_before_any_attempt_is_known_at_once(wait: Callable[[int], float], attempt: int):
    began = time.process_time()
    assert 0 <= wait(attempt) <= 3600 * 1.1
    assert 0 <= backoff.seeing_errors(wait)(attempt, None) <= 3600 * 1.1
    assert time.process_time() - began < 0.5


def test_backoff_of_the_user_gets_no_larger_attempt_than_a_sender_may_allow():
    for wait in (lambda attempt: 2**attempt, lambda attempt, _: 2**attempt):
        assert backoff.seeing_errors(wait)(10**15, None) == 2 ** (backoff.MAX_RETRIES + 1)


def test_jitter_varies_each_wait_by_at_most_its_share():
    wait = backoff.exponential(base=10, factor=1, jitter=0.2)
    waits = [wait(1) for _ in range(200)]
    assert all(8 <= each <= 12 for each in waits)
    assert min(waits) < 9
    assert max(waits) > 11


def test_sequence_uses_its_waits_in_turn_and_then_repeats_the_last():
    assert first(backoff.sequence([1, dt.timedelta(seconds=10), 60]), 5) == [1, 10, 60, 60, 60]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: backoff.fixed(-1), r"seconds -1 is not 0 or more"),
    (lambda: backoff.fixed(math.nan), r"seconds nan is not 0 or more"),
    (lambda: backoff.linear(base=-1), r"base -1 is not"),
    (lambda: backoff.linear(step=-1), r"step -1 is not"),
    (lambda: backoff.linear(maximum=math.inf), r"maximum inf is past"),
    (lambda: backoff.exponential(base="1"), r"base '1' is not a time"),  # type: ignore[arg-type]
    (lambda: backoff.exponential(factor=0.9), r"factor 0.9 is not a number of 1 or more"),
    (lambda: backoff.exponential(factor=math.nan), r"factor nan is not a number of 1 or more"),
    (lambda: backoff.exponential(jitter=1.1), r"jitter 1.1 is not a number between 0 and 1"),
    (lambda: backoff.exponential(jitter=-0.1), r"jitter -0.1 is not a number between 0 and 1"),
    (lambda: backoff.sequence([]), r"is empty: give at least one"),
    (lambda: backoff.sequence([1, -1]), r"wait -1 is not"),
]


@pytest.mark.parametrize(("make", "why"), WRONG)
def test_wrong_setting_is_refused_with_its_value(make: Callable[[], Any], why: str):
    with pytest.raises(InvalidTime, match=why):
        make()


def test_default_retries_span_about_twenty_minutes_with_jitter():
    for attempt, seconds in enumerate([10, 30, 90, 270, 810, 2430, 3600, 3600], start=1):
        waits = {backoff.DEFAULT_BACKOFF(attempt) for _ in range(50)}
        assert len(waits) > 1
        assert all(0.9 * seconds <= wait <= 1.1 * seconds for wait in waits)
    assert backoff.DEFAULT_RETRIES == 5


TEXTS: list[tuple[str, Backoff]] = [
    ("fixed:10s", backoff.fixed(10)),
    ("fixed:0.5s", backoff.fixed(0.5)),
    ("linear:base=1s,step=5s,maximum=3600s", backoff.linear(1, 5)),
    ("exponential:base=10s,factor=3,maximum=3600s,jitter=0", backoff.exponential(10, 3, jitter=0)),
    ("exponential:base=0.001s,factor=1.5,maximum=86400s,jitter=0", backoff.exponential(0.001, 1.5, 86400, 0)),
    ("sequence:1s,10s,60s", backoff.sequence([1, 10, 60])),
]


@pytest.mark.parametrize(("text", "made"), TEXTS)
def test_backoff_as_text_gives_the_same_waits(text: str, made: Backoff):
    assert isinstance(made, backoff.WrittenBackoff)
    assert made.text == text
    assert first(backoff.parse(text), 20) == first(made, 20)
    assert backoff.parse(text) == made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("exponential", "exponential:base=1s,factor=2,maximum=3600s,jitter=0.1"),
        ("linear:step=1m", "linear:base=1s,step=60s,maximum=3600s"),
        (" exponential:maximum=1h30m, factor=1.5 ", "exponential:base=1s,factor=1.5,maximum=5400s,jitter=0.1"),
        ("sequence:500ms,1m", "sequence:0.5s,60s"),
        ("fixed:5", "fixed:5s"),
    ],
)
def test_omitted_parts_of_a_backoff_text_have_defaults(text: str, shown: str):
    made = backoff.parse(text)
    assert isinstance(made, backoff.WrittenBackoff)
    assert made.text == shown


@pytest.mark.parametrize(
    "text",
    [
        *("", "fixed", "fixed:", "fixed:1s,2s", "fixed:seconds=1s", "sequence:", "sequence", "soon:1s", "linear:1s"),
        *("linear:base=1s,base=2s", "linear:jitter=1", "exponential:factor=0.5", "exponential:factor=x"),
        *("exponential:jitter=2", "exponential:base=-1s", "fixed:-1s", "fixed:1e3s", "Fixed:1s", "sequence:1s,,2s"),
    ],
    ids=repr,
)
def test_invalid_backoff_text_is_refused_with_its_value(text: str):
    with pytest.raises(InvalidInput) as refused:
        backoff.parse(text)
    assert repr(text) in str(refused.value)


def one(attempt: int) -> float:
    return attempt


def one_and_a_default(attempt: int, base: float = 10) -> float:
    return attempt * base


def two(attempt: int, _cause: BaseException | None) -> float:
    return attempt


def two_by_name(attempt: int, error: BaseException | None = None) -> float:
    return attempt if error is None else 60


@pytest.mark.parametrize(
    ("wait", "seconds"), [(one, 3), (one_and_a_default, 30), (two, 3), (two_by_name, 60), (backoff.fixed(5), 5)]
)
def test_backoff_gets_the_error_if_it_has_a_parameter_for_it(wait: backoff.Backoff, seconds: float):
    assert backoff.seeing_errors(wait)(3, ValueError()) == seconds


def test_backoff_with_a_wrong_signature_is_refused_at_once():
    wrong: Any
    for wrong in (lambda: 5, lambda _attempt, _error, _more: 5):
        with pytest.raises(InvalidInput, match="cannot be called with only the attempt"):
            backoff.seeing_errors(wrong)


def test_backoff_text_can_be_read_back_for_every_kind_of_number():
    given = backoff.exponential(base=1, factor=True, jitter=False)
    assert isinstance(given, backoff.WrittenBackoff)
    assert first(backoff.parse(given.text)) == [1] * 6
