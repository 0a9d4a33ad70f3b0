"""The axes of a chart: where times and values are drawn, and their labels."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from delayq.model.queue_stats import EPOCH
from delayq.model.show import show_duration, show_short

WIDTH, HEIGHT = 600.0, 120.0
INSET = 1.0
"""The margin above the highest and below the lowest line, so that neither is cut."""

STEPS = [dt.timedelta(seconds=15), dt.timedelta(minutes=10), dt.timedelta(hours=4)]
MOST_TICKS = 6
MOST_MARKS = 6
DWARFED = 20
"""A line below this share of the highest line cannot be read on a linear axis."""

ROUND_TIMES = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 86_400, 864_000, 8_640_000)
"""The labels of an axis of durations, in seconds."""


class Mark(NamedTuple):
    """A label of an axis, and its position in percent, from the left or from the top."""

    percent: float
    text: str


class TimeAxis(NamedTuple):
    """The time from `start` to `end`, also where there are no samples."""

    start: dt.datetime
    end: dt.datetime

    def x(self, at: dt.datetime) -> float:
        """Return the position of a time, 0 to WIDTH."""
        return round(WIDTH * ((at - self.start) / (self.end - self.start)), 1)

    def marks(self) -> list[Mark]:
        """Return the labels: round times in UTC."""
        step = next((each for each in STEPS if self.end - self.start <= MOST_TICKS * each), STEPS[-1])
        text = "%H:%M:%S" if step < dt.timedelta(minutes=1) else "%H:%M"
        at, found = EPOCH + -((EPOCH - self.start) // step) * step, list[Mark]()
        while at <= self.end:
            found.append(Mark(round(self.x(at) / WIDTH * 100, 2), at.astimezone(dt.UTC).strftime(text)))
            at += step
        return found


class ValueAxis(NamedTuple):
    """Values from 0, or from the least value on a logarithmic axis, to a round number.

    Attributes:
        share: returns the height of a value, 0 to 1.
        labels: the labelled values, from the top, with their texts.
        is_log: whether it is logarithmic.
    """

    share: Callable[[float], float]
    labels: dict[float, str]
    is_log: bool = False

    def y(self, value: float) -> float:
        """Return the position of a value from the top, 0 to HEIGHT."""
        return round(HEIGHT - INSET - self.share(value) * (HEIGHT - 2 * INSET), 1)

    def marks(self) -> list[Mark]:
        """Return the labels."""
        return [Mark(round(self.y(value) / HEIGHT * 100, 2), text) for value, text in self.labels.items()]


def linear(top: float, shown: Callable[[float], str]) -> ValueAxis:
    """Return an axis from 0 to the next round number."""
    end = nice(top)
    return ValueAxis(lambda value: value / end, {part * end: shown(part * end) for part in (1, 0.5, 0)})


def counts(lines: Iterable[Iterable[float]]) -> ValueAxis:
    """Return an axis for whole numbers; it is logarithmic if one line dwarfs another."""
    highest = [max(values, default=0) for values in lines]
    top = max(highest, default=0)
    if any(0 < each * DWARFED < top for each in highest):
        return _log_counts(top)
    axis = linear(max(top, 1), show_short)
    return axis._replace(labels={value: text for value, text in axis.labels.items() if value == int(value)})


def _log_counts(top: float) -> ValueAxis:
    """Return an axis on which 1 is as far above 0 as 10 is above 1."""
    decades = math.ceil(math.log10(top))
    powers: list[float] = [10**power for power in range(decades + 1)]
    labels = {value: show_short(value) for value in [*_labelled(powers), 0]}
    return ValueAxis(lambda value: (1 + math.log10(value)) / (1 + decades) if value >= 1 else 0, labels, is_log=True)


def log_times(longest: float) -> ValueAxis:
    """Return a logarithmic axis for seconds, from a millisecond to the next round time."""
    last = next((i for i, each in enumerate(ROUND_TIMES) if i and each >= longest), len(ROUND_TIMES) - 1)
    labels = {seconds: show_duration(seconds) for seconds in _labelled(ROUND_TIMES[: last + 1])}
    decades = math.log10(ROUND_TIMES[last] / ROUND_TIMES[0])
    return ValueAxis(
        lambda value: min(1, math.log10(max(value, 0.001) / ROUND_TIMES[0]) / decades), labels, is_log=True
    )


def _labelled(marks: Sequence[float]) -> Sequence[float]:
    """Return the marks that get labels, so that labels do not overlap; the highest always gets one."""
    return marks[:: -math.ceil(len(marks) / MOST_MARKS)]


def nice(top: float) -> float:
    """Return the end of a scale: the least 1, 2 or 5 times a power of ten that is at least `top`."""
    if top <= 0:
        return 1
    unit: float = 10 ** math.floor(math.log10(top))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= top * 0.999)
