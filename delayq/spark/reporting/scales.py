"""Scales of charts: the positions of values, and which values get a line and a label."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from delayq.model.show import show_count, show_duration, show_short

SHORTEST = 0.001  # seconds; shorter times are drawn here, as a logarithmic scale has no 0
_LOG_TICKS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0, 864_000.0, 8_640_000.0)
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200, 10_080, 20_160, 43_200, 129_600)


class Tick(NamedTuple):
    """A labelled value: its position, from 0 to 1, and its text."""

    at: float
    label: str


class Scale(Protocol):
    """The positions of values on an axis."""

    @property
    def ticks(self) -> Sequence[Tick]: ...

    def at(self, value: float) -> float: ...

    def text(self, value: float) -> str: ...


@dataclass(frozen=True)
class CountScale:
    """From 0 to a round number that is at least `most`."""

    most: float

    @property
    def _step(self) -> float:
        rough = max(self.most, 1) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        return max(1.0, next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough))

    @property
    def _top(self) -> float:
        return self._step * max(1, math.ceil(self.most / self._step))

    @property
    def ticks(self) -> list[Tick]:
        """The round numbers."""
        count = round(self._top / self._step)
        return [Tick(i / count, show_short(i * self._step)) for i in range(count + 1)]

    def at(self, value: float) -> float:
        """Return the position of a number."""
        return value / self._top

    def text(self, value: float) -> str:
        """Write a number in full."""
        return show_count(value)


@dataclass(frozen=True)
class DurationScale:
    """Durations in seconds, on a logarithmic scale."""

    least: float
    most: float

    @property
    def _ends(self) -> tuple[float, float]:
        low = max((tick for tick in _LOG_TICKS if tick <= max(self.least, SHORTEST)), default=SHORTEST)
        high = next((tick for tick in _LOG_TICKS if tick >= self.most and tick > low), max(self.most, 2 * low))
        return low, high

    @property
    def ticks(self) -> list[Tick]:
        """Powers of ten, and the units of time."""
        low, high = self._ends
        return [Tick(self.at(tick), show_duration(tick)) for tick in _LOG_TICKS if low <= tick <= high]

    def at(self, value: float) -> float:
        """Return the position of a duration."""
        low, high = self._ends
        return math.log(max(value, low) / low) / math.log(high / low)

    def text(self, value: float) -> str:
        """Write a duration."""
        return show_duration(value)


@dataclass(frozen=True)
class TimeAxis:
    """Times in UTC, on a linear scale.

    Attributes:
        first, last: the ends.
        most: the most labels.
    """

    first: dt.datetime
    last: dt.datetime
    most: int = 7

    def at(self, moment: dt.datetime) -> float:
        """Return the position of a moment."""
        return (moment - self.first) / max(self.last - self.first, dt.timedelta(minutes=1))

    @property
    def ticks(self) -> list[Tick]:
        """Return round times; the first one of a day includes the date."""
        minutes = (self.last - self.first) / dt.timedelta(minutes=1)
        step = next((each for each in _TIME_STEPS if minutes / each <= self.most), math.ceil(minutes / self.most))
        moment = dt.datetime.fromtimestamp(math.ceil(self.first.timestamp() / (60 * step)) * 60 * step, dt.UTC)
        found: list[Tick] = []
        day = None
        while moment <= self.last:
            text = (
                f"{moment:%H:%M}"
                if moment.date() == day
                else f"{moment:%d %b}"
                if step >= 1440
                else f"{moment:%d %b %H:%M}"
            )
            found.append(Tick(self.at(moment), text))
            day = moment.date()
            moment += dt.timedelta(minutes=step)
        return found
