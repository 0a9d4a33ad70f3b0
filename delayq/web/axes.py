"""The axes of a chart: where times and values are drawn, and their labels."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence

from delayq.model.chart import Scale, Tick, TimeAxis, linear, logarithmic, nice
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


def x_of(time: TimeAxis, at: dt.datetime) -> float:
    """Return the position of a time, 0 to WIDTH."""
    return round(WIDTH * time.share(at), 1)


def y_of(share: float) -> float:
    """Return the position of a value's share from the top, 0 to HEIGHT."""
    return round(HEIGHT - INSET - share * (HEIGHT - 2 * INSET), 1)


def time_marks(time: TimeAxis) -> list[Tick]:
    """Return the labels of an axis of times, round times in UTC, and their positions in percent from the left."""
    step = next((each for each in STEPS if time.end - time.start <= MOST_TICKS * each), STEPS[-1])
    text = "%H:%M:%S" if step < dt.timedelta(minutes=1) else "%H:%M"
    return [Tick(round(x_of(time, at) / WIDTH * 100, 2), at.strftime(text)) for at in time.round_times(step)]


def value_marks(scale: Scale) -> list[Tick]:
    """Return the labels of an axis of values, and their positions in percent from the top."""
    return [tick._replace(at=round(y_of(tick.at) / HEIGHT * 100, 2)) for tick in scale.ticks]


def to_round(top: float, shown: Callable[[float], str]) -> Scale:
    """Return a scale from 0 to the next round number."""
    return linear((part * nice(top) for part in (1, 0.5, 0)), shown)


def counts(lines: Iterable[Iterable[float]]) -> Scale:
    """Return an axis for whole numbers; it is logarithmic if one line dwarfs another."""
    highest = [max(values, default=0) for values in lines]
    top = max(highest, default=0)
    if any(0 < each * DWARFED < top for each in highest):
        return _log_counts(top)
    axis = to_round(max(top, 1), show_short)
    return axis._replace(labels={value: text for value, text in axis.labels.items() if value == int(value)})


def _log_counts(top: float) -> Scale:
    """Return an axis on which 1 is as far above 0 as 10 is above 1."""
    decades = math.ceil(math.log10(top))
    powers: list[float] = [10**power for power in range(decades + 1)]
    labels = {value: show_short(value) for value in [*_labelled(powers), 0]}
    return Scale(lambda value: (1 + math.log10(value)) / (1 + decades) if value >= 1 else 0, labels, is_log=True)


def log_times(longest: float) -> Scale:
    """Return a logarithmic axis for seconds, from a millisecond to the next round time."""
    last = next((i for i, each in enumerate(ROUND_TIMES) if i and each >= longest), len(ROUND_TIMES) - 1)
    marks = ROUND_TIMES[: last + 1]
    return logarithmic(marks[0], marks[-1], _labelled(marks), show_duration)


def _labelled(marks: Sequence[float]) -> Sequence[float]:
    """Return the marks that get labels, so that labels do not overlap; the highest always gets one."""
    return marks[:: -math.ceil(len(marks) / MOST_MARKS)]
