"""Charts: the positions of lines and bars."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import pytest

from delayq.model.chart import TimeAxis, nice
from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.sample import Sample
from delayq.web import axes, charts, render

NOON = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


def sample(minute: float, acked: int, **counts: Any) -> Sample:
    at = NOON + dt.timedelta(minutes=minute)
    return Sample(at, QueueStats(queue="emails", at=at, sent=acked, acked=acked, **counts))


HOUR = TimeAxis(NOON, NOON + dt.timedelta(hours=1))
MINUTE = dt.timedelta(minutes=1)


def page_of(chart: charts.Chart) -> str:
    module: Any = render._environment().get_template("parts.html").module
    return str(module.chart(chart))


def test_line_breaks_at_missing_samples_and_a_lone_point_is_a_dot():
    assert charts.path([0, 10, 20, 90, 100], [11, 1, 11, 9, 8], 25) == ("M0 11.0L10 1.0L20 11.0M90 9.0L100 8.0", "")
    assert charts.path([0, 10, 20], [11, None, 1], 25) == ("", "M0 11.0h.1M20 1.0h.1")
    assert charts.path([], [], 25) == ("", "")


def test_time_axis_has_a_fixed_length():
    counted = [sample(minute, 0).stats for minute in (30, 31, 32)]
    chart = charts.backlog(counted, HOUR, MINUTE)
    assert [row.x for row in chart.rows] == [300, 310, 320]
    assert chart.series[0].path == "M300 119.0L310 119.0L320 119.0"
    assert [mark.label for mark in chart.time_marks] == [f"12:{ten}0" for ten in range(6)] + ["13:00"]
    assert "12:00 to 13:00" in page_of(chart)


@pytest.mark.parametrize(
    ("start", "length", "first", "count"),
    [
        ("12:00:07", 60, (13.33, "12:00:15"), 4),
        ("12:07:00", 3600, (5.0, "12:10"), 6),
        ("13:00:00", 86_400, (12.5, "16:00"), 6),
    ],
)
def test_time_axis_is_labelled_at_round_times(start: str, length: int, first: tuple[float, str], count: int):
    begin = dt.datetime.fromisoformat(f"2026-11-22T{start}Z")
    marks = axes.time_marks(TimeAxis(begin, begin + dt.timedelta(seconds=length)))
    assert (marks[0], len(marks)) == (first, count)


def test_line_does_not_bridge_missing_samples():
    counted = [sample(minute, 0, dead=minute).stats for minute in (0, 1, 2, 20, 21, 50)]
    dead = charts.backlog(counted, HOUR, MINUTE).series[-1]
    assert (dead.path.count("M"), dead.path.count("L"), dead.dots) == (2, 3, "M500 1.0h.1")


def test_backlog_has_a_line_for_each_state_on_a_linear_axis():
    chart = charts.backlog([sample(1, 0, scheduled=4, due=3, unack=2, retrying=1, dead=8).stats], HOUR, MINUTE)
    assert [each.name for each in chart.series] == ["scheduled", "due", "running", "retrying", "dead"]
    assert chart.rows[0].cells == ["4", "3", "2", "1", "8"]
    assert [mark.label for mark in chart.value_marks] == ["10", "5", "0"]
    assert "log scale" not in page_of(chart)


def test_backlog_with_one_dominant_state_is_logarithmic_and_says_so():
    chart = charts.backlog([sample(1, 0, due=7, dead=4200).stats], HOUR, MINUTE)
    assert [mark.label for mark in chart.value_marks] == ["10k", "1k", "100", "10", "1", "0"]
    assert [chart.values.share(value) for value in (0, 1, 10, 10_000)] == pytest.approx([0, 0.2, 0.4, 1])
    text = page_of(chart)
    assert '<span class="tag">log scale</span>' in text
    assert ", log scale; use the arrow keys to read values" in text


def test_counts_seconds_apart_make_no_peak():
    history = [sample(0, 0), sample(1, 60), sample(1.1, 120), sample(2, 180)]
    assert [each.acked for each in charts.rates_of(history)] == [1.0, 2.0]


def test_time_since_the_last_sample_is_drawn_too():
    history = [sample(0, 0), sample(1, 60)]
    assert [each.acked for each in charts.rates_of(history, sample(1.5, 120).stats)] == [1.0, 2.0]
    assert [each.acked for each in charts.rates_of(history, sample(1.1, 120).stats)] == [1.0]


def test_sparkline_covers_the_last_hour_whatever_samples_there_are():
    history = [sample(-120, 0), sample(0, 10_000), sample(1, 10_060), sample(2, 10_060)]
    after = [NOON + dt.timedelta(minutes=each) for each in (2, 32, 60)]
    paths = ["M118 1.0L120 23.0", "M58 1.0L60 23.0", "M2 1.0L4 23.0"]
    assert [charts.sparkline(history, now) for now in after] == [(path, "between 0/s and 1/s") for path in paths]
    assert charts.sparkline(history[:1], NOON) == charts.sparkline([], NOON) == ("", "")


def test_throughput_scale_ends_at_a_round_number():
    chart = charts.throughput(charts.rates_of([sample(0, 0), sample(1, 420)]), HOUR, MINUTE)
    assert [mark.label for mark in chart.value_marks] == ["10/s", "5/s", "0/s"]
    assert [(row.at, row.cells) for row in chart.rows] == [(NOON + dt.timedelta(minutes=1), ["7/s", "7/s", "0/s"])]


def test_duration_axis_is_logarithmic_with_round_labels_and_says_so():
    history = [sample(0, 0), sample(1, 60, lateness={4: 50, 1024: 10})]
    rates = charts.rates_of(history)
    chart = charts.times("Lateness", rates, [rates[0].lateness_p50], [rates[0].lateness_p99], HOUR, MINUTE)
    assert [mark.label for mark in chart.value_marks] == ["10s", "1s", "100ms", "10ms", "1ms"]
    assert [chart.values.share(value) for value in (0, 0.001, 0.1, 10, 20)] == pytest.approx([0, 0, 0.5, 1, 1])
    assert chart.rows[0].cells == ["< 4ms", "< 1s"]
    assert '<span class="tag">log scale</span>' in page_of(chart)


@pytest.mark.parametrize("longest", [0.001, 0.5, 59, 7000, 1e6, 1e9])
def test_labels_of_a_logarithmic_axis_do_not_overlap(longest: float):
    percents = [mark.at for mark in axes.value_marks(axes.log_times(longest))]
    assert min(b - a for a, b in pairwise(percents)) > 10  # of 7.5rem; a label has 0.75rem


def test_highest_bar_ends_below_a_round_number_with_retries_on_top():
    ends = [NOON + dt.timedelta(seconds=second) for second in range(3)]
    counts = [Upcoming(starts_at=ends[0], ends_at=ends[1], pending=3, retry=2)]
    counts += [Upcoming(starts_at=ends[1], ends_at=ends[2], pending=1, retry=0)]
    chart = charts.due("Next minute", counts)
    assert [each.path for each in chart.series] == [
        "M0 119V48.2h240V119zM300 119V95.4h240V119z",
        "M0 48.2V1h240V48.2z",
    ]
    assert [row.cells for row in chart.rows] == [["3", "2"], ["1", "0"]]
    assert chart.sum == 6


@pytest.mark.parametrize(("top", "end"), [(0, 1), (0.3, 0.5), (1, 1), (1.1, 2), (4.2, 5), (70, 100), (1e6, 1e6)])
def test_scale_ends_at_the_next_round_number(top: float, end: float):
    assert nice(top) == pytest.approx(end)


def test_single_count_is_a_dot_and_a_table_row():
    rates = charts.rates_of([sample(0, 0), sample(1, 90)])
    drawn = page_of(charts.throughput(rates, HOUR, MINUTE))
    assert '<path class="first dots" d="M10 30.5h.1"/>' in drawn
    assert '<tr data-x="10.0"><th scope="row">12:01:00</th>' in drawn
    assert 'class="first" d="M1 ' in drawn  # the legend of the line, but no line
    assert drawn.count('class="first') == 2


def test_backlog_of_a_new_queue_is_dots():
    chart = charts.backlog([sample(59.9, 0, dead=2).stats, sample(60, 0, dead=2).stats], HOUR, MINUTE)
    assert [(each.path, each.dots) for each in chart.series][-1] == ("", "M599 1.0h.1")


def test_chart_without_a_count_says_so():
    assert "No data yet" in page_of(charts.throughput([], HOUR, MINUTE))
