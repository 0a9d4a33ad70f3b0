"""What charts share: scales with labelled values, the axis of times, and lines that break where values are missing."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from delayq.model.queue_stats import EPOCH

Values = Sequence[float | None]


class Tick(NamedTuple):
    """A labelled value of an axis: its position, from 0 to 1, and its text."""

    at: float
    label: str


class Scale(NamedTuple):
    """The axis of values.

    Attributes:
        share: returns the position of a value, from 0 to 1.
        labels: the labelled values, with their texts.
        is_log: whether it is logarithmic.
    """

    share: Callable[[float], float]
    labels: Mapping[float, str]
    is_log: bool = False

    @property
    def ticks(self) -> list[Tick]:
        """The labels."""
        return [Tick(self.share(value), text) for value, text in self.labels.items()]


def nice(top: float) -> float:
    """Return the least 1, 2 or 5 times a power of ten that is at least `top`, or 1 per mille below it."""
    if top <= 0:
        return 1
    unit: float = 10 ** math.floor(math.log10(top))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= top * 0.999)


def linear(marks: Iterable[float], shown: Callable[[float], str]) -> Scale:
    """Return a scale from 0 to the highest of these marks."""
    labels = {value: shown(value) for value in marks}
    end = max(labels)
    return Scale(lambda value: value / end, labels)


def logarithmic(low: float, high: float, marks: Iterable[float], shown: Callable[[float], str]) -> Scale:
    """Return a scale from `low` to `high`; values beyond are drawn at its ends."""
    decades = math.log10(high / low)
    return Scale(
        lambda value: min(1, math.log10(max(value, low) / low) / decades), {each: shown(each) for each in marks}, True
    )


class TimeAxis(NamedTuple):
    """The time from `start` to `end`, also where there are no values."""

    start: dt.datetime
    end: dt.datetime

    def share(self, at: dt.datetime) -> float:
        """Return the position of a time, from 0 to 1."""
        return (at - self.start) / (self.end - self.start or dt.timedelta(minutes=1))

    def round_times(self, step: dt.timedelta) -> Iterator[dt.datetime]:
        """Yield the times, in UTC, that are multiples of `step`."""
        at = EPOCH - (EPOCH - self.start) // step * step
        while at <= self.end:
            yield at
            at += step


def pieces(xs: Sequence[float], ys: Values, gap: float) -> list[list[tuple[float, float]]]:
    """Return the points of each unbroken line.

    A line breaks where a value is missing, or where the next point is farther away than `gap`.
    """
    found: list[list[tuple[float, float]]] = []
    last = -math.inf
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            last = -math.inf
            continue
        if x - last > gap:
            found.append([])
        found[-1].append((x, y))
        last = x
    return found
