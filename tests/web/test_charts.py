"""Lines and bars: where the points of a chart are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.sample import Sample
from delayq.web import charts, render

NOON = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


def sample(minute: float, acked: int, **counts: Any) -> Sample:
    at = NOON + dt.timedelta(minutes=minute)
    return Sample(at, QueueStats(queue="emails", at=at, sent=acked, acked=acked, **counts))


def test_line_breaks_off_where_nothing_was_counted():
    assert charts.path([0, 10, 20, 90, 100], [0, 1, 0, 0, 0], 12) == "M0 11.0h.1L10 1.0L20 11.0M90 11.0h.1L100 11.0"
    assert charts.path([0, 10, 20], [0, None, 1], 12) == "M0 11.0h.1M20 1.0h.1"
    assert charts.path([], [], 12) == ""


def test_counts_within_seconds_of_each_other_make_no_peak():
    history = [sample(0, 0), sample(1, 60), sample(1.1, 120), sample(2, 180)]
    assert [each.acked for each in charts.rates_of(history)] == [1.0, 2.0]


def test_what_happened_since_the_last_sample_is_drawn_too():
    history = [sample(0, 0), sample(1, 60)]
    assert [each.acked for each in charts.rates_of(history, sample(1.5, 120).stats)] == [1.0, 2.0]
    assert [each.acked for each in charts.rates_of(history, sample(1.1, 120).stats)] == [1.0]


def test_sparkline_is_of_the_last_hour_alone():
    history = [sample(-120, 0), sample(0, 10_000), sample(1, 10_060), sample(2, 10_060)]
    assert charts.sparkline(history) == ("M0 1.0h.1L120 23.0", "between 0/s and 1/s")
    assert charts.sparkline(history[:1]) == charts.sparkline([]) == ("", "")


def test_throughput_ends_its_scale_at_a_round_number():
    chart = charts.throughput(charts.rates_of([sample(0, 0), sample(1, 420)]))
    assert chart.scale == ["10/s", "5/s", "0/s"]
    assert [(row.at, row.cells) for row in chart.rows] == [(NOON + dt.timedelta(minutes=1), ["7/s", "7/s", "0/s"])]


def test_each_step_of_a_scale_of_times_is_as_many_times_as_long():
    history = [sample(0, 0), sample(1, 60, lateness={4: 50, 1024: 10})]
    rates = charts.rates_of(history)
    chart = charts.times("Lateness", rates, [rates[0].lateness_p50], [rates[0].lateness_p99])
    assert chart.scale == ["1s", "32ms", "1ms"]
    assert chart.rows[0].cells == ["< 4ms", "< 1s"]


def test_highest_bar_fills_the_height():
    ends = [NOON + dt.timedelta(seconds=second) for second in range(3)]
    counts = [Upcoming(starts_at=ends[0], ends_at=ends[1], pending=3, retry=1)]
    counts += [Upcoming(starts_at=ends[1], ends_at=ends[2], pending=1, retry=0)]
    assert [(bar.x, bar.pending, bar.retry) for bar in charts.bars(counts)] == [(0, 90, 30), (300, 30, 0)]


@pytest.mark.parametrize(("rate", "shown"), [(0, "0/s"), (0.0166, "0.0166/s"), (3.641, "3.64/s"), (1234.5, "1,234/s")])
def test_rate_has_as_many_digits_as_mean_something(rate: float, shown: str):
    assert charts.per_second(rate) == shown


@pytest.mark.parametrize(("top", "end"), [(0, 1), (0.3, 0.5), (1, 1), (1.1, 2), (4.2, 5), (70, 100), (1e6, 1e6)])
def test_scale_ends_at_a_round_number_not_below(top: float, end: float):
    assert charts.nice(top) == pytest.approx(end)


def test_chart_of_one_count_tells_it_in_figures():
    rates = charts.rates_of([sample(0, 0), sample(1, 90)])
    page: Any = render._environment().get_template("parts.html").module
    drawn = page.chart(charts.throughput(rates))
    assert "<dt>acked</dt><dd>1.5/s</dd>" in drawn
    assert "As of 12:01 UTC." in drawn
    assert 'class="line' not in drawn
    assert 'class="line' in page.chart(charts.throughput([*rates, *rates]))
