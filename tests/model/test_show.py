"""Numbers as text are the same on pages, in terminals and in reports."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable

import pytest

from delayq.model.show import or_dash, show_count, show_duration, show_per_second, show_ranges, show_short


@pytest.mark.parametrize(
    ("rate", "shown"), [(0, "0"), (0.0166, "0.0166"), (3.641, "3.64"), (12, "12"), (99.97, "100"), (1234.5, "1,234")]
)
def test_rate_has_its_significant_digits(rate: float, shown: str):
    assert show_per_second(rate) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0"), (500, "500"), (2500, "2.5k"), (1e6, "1M"), (2e9, "2G")])
def test_axis_labels_of_counts_are_short(count: float, shown: str):
    assert show_short(count) == shown


def test_duration_from_a_score_of_infinity_is_words():
    assert show_duration(math.inf) == "more than a century"


def test_what_is_unknown_is_a_dash():
    assert [or_dash(show_count)(each) for each in (None, math.inf, math.nan, 0, 1234)] == ["–", "–", "–", "0", "1,234"]
    assert or_dash(show_count)(1.25, 1) == "1.2"
    assert or_dash(show_duration, "-")(None) == "-"
    assert or_dash(show_duration)(dt.timedelta(minutes=90)) == "1h 30m"


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 2, 3, 4, 9], "0, 2–4, 9"),
        ([0, 2, 4, 6, 8], "0, 2, 4, 6, 8"),
        (range(0, 12, 2), "0, 2, 4, 6, 8…"),
    ],
)
def test_rising_numbers_are_shown_as_ranges(numbers: Iterable[int], shown: str):
    assert show_ranges(numbers) == shown
