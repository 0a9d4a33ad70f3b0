"""Axes have round numbers, and durations are written as people read them."""

from __future__ import annotations

import datetime as dt
import re

import pyarrow as pa
import pytest

from delayq.model.chart import TimeAxis
from delayq.spark.reporting.charts import count_scale, duration_scale, time_ticks
from delayq.spark.reporting.page import step_of

DAY = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


@pytest.mark.parametrize(("most", "labels"), [(0, "0 1"), (3, "0 1 2 3"), (42, "0 20 40 60"), (1001, "0 500 1k 1.5k")])
def test_count_axis_has_round_labels_from_zero(most: float, labels: str):
    scale = count_scale(most)
    assert [tick.label for tick in scale.ticks] == labels.split()
    assert (scale.ticks[0].at, scale.ticks[-1].at) == (0, 1)
    assert 0 <= scale.share(most) <= 1


@pytest.mark.parametrize(("least", "most"), [(0, 0), (0, 0.0001), (0.002, 0.9), (0.5, 100_000), (1, 1e9)])
def test_durations_are_placed_in_order_within_their_axis(least: float, most: float):
    scale = duration_scale(least, most)
    places = [scale.share(value) for value in (least, (least + most) / 2, most)]
    assert 0 <= min(places) <= max(places) <= 1
    assert places == sorted(places)
    assert len(scale.ticks) >= 2


@pytest.mark.parametrize("minutes", [0, 1, 59, 60, 24 * 60, 9 * 24 * 60, 400 * 24 * 60])
def test_time_axis_has_a_few_labels(minutes: int):
    ticks = time_ticks(TimeAxis(DAY, DAY + dt.timedelta(minutes=minutes)))
    assert 1 <= len(ticks) <= 8
    assert all(0 <= tick.at <= 1 for tick in ticks)
    assert re.match(r"\d\d [A-Z][a-z]{2}", ticks[0].label)  # at least the first label shows the day


@pytest.mark.parametrize(("minutes", "step"), [(0, 1), (199, 1), (200, 2), (24 * 60, 10), (365 * 24 * 60, 10_080)])
def test_spans_are_as_fine_as_a_screen_can_show(minutes: int, step: int):
    assert step_of(pa.table({"minute": [DAY, DAY + dt.timedelta(minutes=minutes)]})) == step
