"""Charts: lines and bars for the templates, which draw them as SVG."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from delayq.model.chart import Scale, Tick, TimeAxis, Values, pieces
from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.rates import Rates, between
from delayq.model.sample import Sample
from delayq.model.show import show_count, show_duration, show_per_second, show_short
from delayq.web import axes
from delayq.web.axes import HEIGHT, INSET, WIDTH, x_of, y_of

HOUR = dt.timedelta(hours=1)
LEAST = dt.timedelta(seconds=20)
GAP = 2.5
"""If two points are more than this many samples apart, a sample is missing between them, and the line breaks."""

BACKLOG = ("scheduled", "due", "running", "retrying", "dead")


class ChartSeries(NamedTuple):
    """A series of a chart.

    Attributes:
        kind: the CSS class that decides its look.
        path: the lines or bars.
        dots: points without a neighbour that a line could lead to.
    """

    name: str
    kind: str
    path: str
    dots: str = ""


class ChartRow(NamedTuple):
    """The values of a chart at one time, as text, and their position."""

    at: dt.datetime
    x: float
    cells: Sequence[str]


class Chart(NamedTuple):
    """A chart: lines or bars over time, and a table of the same values.

    Attributes:
        time: the time axis; its length does not depend on the data.
        values: the value axis.
        sum: the sum of all bars; None for lines.
    """

    title: str
    time: TimeAxis
    values: Scale
    series: Sequence[ChartSeries]
    rows: Sequence[ChartRow]
    sum: int | None = None

    @property
    def time_marks(self) -> list[Tick]:
        """The labels of times."""
        return axes.time_marks(self.time)

    @property
    def value_marks(self) -> list[Tick]:
        """The labels of values."""
        return axes.value_marks(self.values)

    @property
    def grid(self) -> str:
        """The path of the grid lines."""
        across = [f"M0 {mark.at * HEIGHT / 100:g}H{WIDTH:g}" for mark in self.value_marks]
        down = [f"M{mark.at * WIDTH / 100:g} 0V{HEIGHT:g}" for mark in self.time_marks]
        return "".join(across + down)


class Sparkline(NamedTuple):
    """A line without axes, and its range in words; empty if there are no samples."""

    path: str = ""
    text: str = ""


class LagCount(NamedTuple):
    """The lag of each group of a topic at one time."""

    at: dt.datetime
    lags: Mapping[str, int]


class Line(NamedTuple):
    """A line of a chart: its name, its kind, and its value at each time, or None."""

    name: str
    kind: str
    values: Values


def rates_of(history: Sequence[Sample], now: QueueStats | None = None) -> list[Rates]:
    """Return the rates between each two samples, and since the last one.

    Samples only seconds apart, such as those of a consumer that has just started, are left out: they make random peaks.
    """
    counts = _apart([*(sample.stats for sample in history), *([now] if now else [])])
    found = [between(before, after) for before, after in pairwise(counts)]
    return [each for each in found if each is not None]


def sparkline(history: Sequence[Sample], now: dt.datetime, width: float = 120, height: float = 24) -> Sparkline:
    """Draw the acks per second over the hour before `now`; the width is the whole hour, also if samples are missing."""
    counts = _apart([each.stats for each in history if each.at >= now - HOUR])
    acked = [max(0, b.acked - a.acked) / (b.at - a.at).total_seconds() for a, b in pairwise(counts)]
    if not acked:
        return Sparkline()
    top = max(acked)
    xs = [min(width, round(width * (1 - (now - each.at) / HOUR), 1)) for each in counts[1:]]
    usual = sorted(b - a for a, b in pairwise(xs))
    gap = GAP * usual[len(usual) // 2] if usual else 0
    ys = [height - INSET - each / (top or 1) * (height - 2 * INSET) for each in acked]
    return Sparkline("".join(path(xs, ys, gap)), f"between {_per_second(min(acked))} and {_per_second(top)}")


def _apart(counts: Sequence[QueueStats]) -> list[QueueStats]:
    """Leave out counts that follow too soon after others."""
    kept: list[QueueStats] = []
    for each in counts:
        if not kept or each.at - kept[-1].at >= LEAST:
            kept.append(each)
    return kept


def backlog(counted: Sequence[QueueStats], time: TimeAxis, step: dt.timedelta) -> Chart:
    """Draw the number of messages in each state over time.

    Args:
        step: the time between counts if none is missing.
    """
    counted = _apart(counted)
    lines = [Line(name, name, [getattr(each, name) for each in counted]) for name in BACKLOG]
    values = axes.counts([value or 0 for value in line.values] for line in lines)
    return _lines("Backlog", [each.at for each in counted], lines, time, values, step, show_count)


def throughput(rates: Sequence[Rates], time: TimeAxis, step: dt.timedelta) -> Chart:
    """Draw the messages sent, acked and failed per second."""
    lines = [
        Line("sent", "second", [each.sent for each in rates]),
        Line("acked", "first", [each.acked for each in rates]),
        Line("failed", "bad", [each.failed for each in rates]),
    ]
    top = max((value or 0 for line in lines for value in line.values), default=0)
    values = axes.to_round(top, lambda rate: f"{show_short(rate)}/s")
    return _lines("Throughput", [each.until for each in rates], lines, time, values, step, _per_second)


def times(title: str, rates: Sequence[Rates], half: Values, most: Values, time: TimeAxis, step: dt.timedelta) -> Chart:
    """Draw the 50 % and 99 % quantiles of a duration, in seconds, on a logarithmic axis."""
    lines = [Line("50 %", "first", half), Line("99 %", "second", most)]
    values = axes.log_times(max((value for value in most if value), default=0))
    return _lines(
        title, [each.until for each in rates], lines, time, values, step, lambda value: f"< {show_duration(value)}"
    )


def lag(counted: Sequence[LagCount], time: TimeAxis, step: dt.timedelta) -> Chart:
    """Draw the lag of a topic's groups: those with the longest lag now, as many as there are kinds of lines."""
    now = counted[-1].lags
    names = sorted(now, key=lambda name: (-now[name], name))[: len(BACKLOG)]
    lines = [
        Line(name, kind, [each.lags.get(name) for each in counted]) for name, kind in zip(names, BACKLOG, strict=False)
    ]
    values = axes.counts([value or 0 for value in line.values] for line in lines)
    return _lines("Lag", [each.at for each in counted], lines, time, values, step, show_count)


def due(title: str, upcoming: Sequence[Upcoming]) -> Chart:
    """Draw the messages that fall due, a bar for each span of time: scheduled ones below, retrying ones on top."""
    time = TimeAxis(upcoming[0].starts_at, upcoming[-1].ends_at)
    values = axes.counts([[each.count for each in upcoming]])
    width = WIDTH / len(upcoming)
    scheduled = [_bar(i * width, width * 0.8, values, 0, each.pending) for i, each in enumerate(upcoming)]
    retrying = [_bar(i * width, width * 0.8, values, each.pending, each.count) for i, each in enumerate(upcoming)]
    series = [ChartSeries("scheduled", "bars", "".join(scheduled)), ChartSeries("retrying", "tops", "".join(retrying))]
    rows = [
        ChartRow(each.starts_at, round((i + 0.4) * width, 1), [show_count(each.pending), show_count(each.retry)])
        for i, each in enumerate(upcoming)
    ]
    return Chart(title, time, values, series, rows, sum(each.count for each in upcoming))


def _bar(x: float, width: float, values: Scale, low: float, high: float) -> str:
    if low == high:
        return ""
    bottom, top = (y_of(values.share(each)) for each in (low, high))
    return f"M{round(x, 1):g} {bottom:g}V{top:g}h{width:g}V{bottom:g}z"


def _lines(
    title: str,
    moments: Sequence[dt.datetime],
    lines: Sequence[Line],
    time: TimeAxis,
    values: Scale,
    step: dt.timedelta,
    shown: Callable[[float], str],
) -> Chart:
    xs = [x_of(time, at) for at in moments]
    gap = GAP * WIDTH * (step / (time.end - time.start))
    series = [
        ChartSeries(
            name, kind, *path(xs, [None if value is None else y_of(values.share(value)) for value in found], gap)
        )
        for name, kind, found in lines
    ]
    columns = [line.values for line in lines]
    rows = [
        ChartRow(at, x, ["–" if (value := column[i]) is None else shown(value) for column in columns])
        for i, (at, x) in enumerate(zip(moments, xs, strict=True))
    ]
    return Chart(title, time, values, series, rows)


def path(xs: Sequence[float], ys: Values, gap: float) -> tuple[str, str]:
    """Return the lines through points, and the points that no line reaches; `gap` is that of `pieces`."""
    lines, dots = "", ""
    for piece in pieces(xs, ys, gap):
        points = [f"{x:g} {y:.1f}" for x, y in piece]
        if len(points) > 1:
            lines += "M" + "L".join(points)
        else:
            dots += f"M{points[0]}h.1"
    return lines, dots


def _per_second(rate: float) -> str:
    return f"{show_per_second(rate)}/s"
