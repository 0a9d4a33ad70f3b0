"""Charts as SVG shapes, which the template draws."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from delayq.model.chart import Scale, Tick, TimeAxis, Values, linear, logarithmic, nice, pieces
from delayq.model.show import or_dash, show_duration, show_short

WIDTH, HEIGHT = 720, 230
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 26

_LOG_TICKS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0, 864_000.0, 8_640_000.0)
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200, 10_080, 20_160, 43_200, 129_600)
_MOST_TIMES = 7


class Series(NamedTuple):
    """Values over time; None for a missing value."""

    name: str
    values: Values


class SeriesPath(NamedTuple):
    """A line: its name, its number (which decides its colour and dashes), and its shape."""

    name: str
    number: int
    shape: str


class HoverStrip(NamedTuple):
    """A strip of the chart that shows the values of its time."""

    left: float
    width: float
    text: str


@dataclass(frozen=True)
class LineChart:
    """Lines over time, with the same figures as a table beside them.

    Attributes:
        title: the title.
        summary: the content in one sentence, for readers who cannot see the chart.
        times: of the values; each is the beginning of a span of `step`.
        series: the lines.
        scale: of the values.
        shown: writes a value.
    """

    title: str
    summary: str
    times: Sequence[dt.datetime]
    step: dt.timedelta
    series: Sequence[Series]
    scale: Scale
    shown: Callable[[float], str]

    width, height = WIDTH, HEIGHT
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(value is None for series in self.series for value in series.values)

    @cached_property
    def paths(self) -> list[SeriesPath]:
        """The lines, with gaps where values or spans are missing. A single value is as long as its span."""
        return [
            SeriesPath(series.name, number, self._shape(series.values)) for number, series in enumerate(self.series)
        ]

    @cached_property
    def rows(self) -> list[Tick]:
        """The labels of values, and where they are in units of the picture."""
        return [tick._replace(at=self._y(tick.at)) for tick in self.scale.ticks]

    @cached_property
    def columns(self) -> list[Tick]:
        """The labels of times, and where they are."""
        return [tick._replace(at=self._x(tick.at)) for tick in time_ticks(self._axis)]

    @cached_property
    def spots(self) -> list[HoverStrip]:
        """Strips, one for each time."""
        xs = list(map(self._middle, self.times))
        edges = [self.left, *((a + b) / 2 for a, b in pairwise(xs)), self.right]
        return [
            HoverStrip(round(a, 1), round(b - a, 1), self._label(i)) for i, (a, b) in enumerate(pairwise(edges))
        ]  # fmt: skip

    @cached_property
    def table(self) -> list[tuple[str, list[str]]]:
        """The figures: each time, with the values of each line."""
        return [
            (f"{time:%Y-%m-%d %H:%M}", [self._text(series.values[i]) for series in self.series])
            for i, time in enumerate(self.times)
        ]

    @cached_property
    def _axis(self) -> TimeAxis:
        return TimeAxis(self.times[0], self.times[-1] + self.step)

    def _shape(self, values: Values) -> str:
        steps = [(time - self.times[0]) / self.step for time in self.times]
        ys = [None if value is None else self._y(self.scale.share(value)) for value in values]
        return "".join(map(self._line, pieces(steps, ys, gap=1)))

    def _line(self, piece: Sequence[tuple[float, float]]) -> str:
        points = [(self.times[0] + step * self.step, f"{y:.1f}") for step, y in piece]
        if len(points) > 1:
            return "M" + "L".join(f"{self._middle(time):.1f} {y}" for time, y in points)
        time, y = points[0]
        start, end = (self._x(self._axis.share(each)) for each in (time, time + self.step))
        return f"M{start:.1f} {y}H{end:.1f}"

    def _label(self, i: int) -> str:
        values = ", ".join(f"{series.name} {self._text(series.values[i])}" for series in self.series)
        return f"{self.times[i]:%d %b %H:%M}: {values}"

    def _text(self, value: float | None) -> str:
        return or_dash(self.shown)(value)

    def _middle(self, time: dt.datetime) -> float:
        return self._x(self._axis.share(time + self.step / 2))

    def _x(self, share: float) -> float:
        return self.left + share * (self.right - self.left)

    def _y(self, share: float) -> float:
        return self.bottom - share * (self.bottom - self.top)


def count_scale(most: float) -> Scale:
    """Return a scale from 0 to a round number that is at least `most`."""
    step = max(1.0, nice(most / 4))
    return linear((i * step for i in range(max(1, math.ceil(most / step)) + 1)), show_short)


def duration_scale(least: float, most: float) -> Scale:
    """Return a logarithmic scale for seconds; shorter times than the first are drawn there, as it has no 0."""
    low = max((tick for tick in _LOG_TICKS if tick <= least), default=_LOG_TICKS[0])
    high = next((tick for tick in _LOG_TICKS if tick >= most and tick > low), max(most, 2 * low))
    return logarithmic(low, high, [tick for tick in _LOG_TICKS if low <= tick <= high], show_duration)


def time_ticks(axis: TimeAxis) -> list[Tick]:
    """Return round times; the first one of a day includes the date."""
    minutes = (axis.end - axis.start) / dt.timedelta(minutes=1)
    step = next((each for each in _TIME_STEPS if minutes / each <= _MOST_TIMES), math.ceil(minutes / _MOST_TIMES))
    found: list[Tick] = []
    day = None
    for moment in axis.round_times(dt.timedelta(minutes=step)):
        text = "%H:%M" if moment.date() == day else "%d %b" if step >= 1440 else "%d %b %H:%M"
        found.append(Tick(axis.share(moment), moment.strftime(text)))
        day = moment.date()
    return found
