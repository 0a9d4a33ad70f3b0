"""Charts as SVG shapes, which the template draws."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from delayq.spark.reporting.scales import Scale, TimeAxis

WIDTH, HEIGHT = 720, 230
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 26


class Series(NamedTuple):
    """Values over time; None for a missing value."""

    name: str
    values: Sequence[float | None]


class SeriesPath(NamedTuple):
    """A line: its name, its number (which decides its colour and dashes), and its shape."""

    name: str
    number: int
    shape: str


class GridLine(NamedTuple):
    """A line across the chart, with its label and its position in units of the picture."""

    at: float
    label: str


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
    """

    title: str
    summary: str
    times: Sequence[dt.datetime]
    step: dt.timedelta
    series: Sequence[Series]
    scale: Scale

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
    def rows(self) -> list[GridLine]:
        """The labels of values."""
        return [GridLine(self._y(tick.at), tick.label) for tick in self.scale.ticks]

    @cached_property
    def columns(self) -> list[GridLine]:
        """The labels of times."""
        return [GridLine(self._x(tick.at), tick.label) for tick in self._axis.ticks]

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

    def _shape(self, values: Sequence[float | None]) -> str:
        parts: list[str] = []
        found = {time: value for time, value in zip(self.times, values, strict=True) if value is not None}
        for time, value in found.items():
            y = f"{self._y(self.scale.at(value)):.1f}"
            if time - self.step in found:
                parts.append(f"L{self._middle(time):.1f} {y}")
            elif time + self.step in found:
                parts.append(f"M{self._middle(time):.1f} {y}")
            else:
                start, end = (self._x(self._axis.at(each)) for each in (time, time + self.step))
                parts.append(f"M{start:.1f} {y}H{end:.1f}")
        return "".join(parts)

    def _label(self, i: int) -> str:
        values = ", ".join(f"{series.name} {self._text(series.values[i])}" for series in self.series)
        return f"{self.times[i]:%d %b %H:%M}: {values}"

    def _text(self, value: float | None) -> str:
        return "–" if value is None else self.scale.text(value)

    def _middle(self, time: dt.datetime) -> float:
        return self._x(self._axis.at(time + self.step / 2))

    def _x(self, share: float) -> float:
        return self.left + share * (self.right - self.left)

    def _y(self, share: float) -> float:
        return self.bottom - share * (self.bottom - self.top)
