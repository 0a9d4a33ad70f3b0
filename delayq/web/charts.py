"""Numbers as lines and bars: what the templates need to draw them as SVG."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.rates import Rates, between
from delayq.model.sample import Sample
from delayq.model.units import show_duration

WIDTH, HEIGHT = 600.0, 120.0
HOUR = dt.timedelta(hours=1)
LEAST = dt.timedelta(seconds=20)
GAP = 3
"""Times as long as usual between two points, nothing was counted: the line breaks off."""

Values = Sequence[float | None]


class ChartLine(NamedTuple):
    """A line of a chart: its name, its kind (which decides how it looks), and where it goes."""

    name: str
    kind: str
    path: str


class ChartRow(NamedTuple):
    """What a chart shows at one time, as text, and where."""

    at: dt.datetime
    x: float
    cells: Sequence[str]


class Chart(NamedTuple):
    """A chart: lines over time, and the same as a table.

    Attributes:
        scale: what the lines of the grid mean, from the top.
    """

    title: str
    lines: Sequence[ChartLine]
    rows: Sequence[ChartRow]
    scale: Sequence[str]


class Sparkline(NamedTuple):
    """A line without axes, and what it shows in words; empty where nothing is known."""

    path: str = ""
    told: str = ""


class StackedBar(NamedTuple):
    """A bar, from below: what is pending, and on top of it what is in retry."""

    x: float
    width: float
    pending: float
    retry: float
    upcoming: Upcoming


def rates_of(history: Sequence[Sample], now: QueueStats | None = None) -> list[Rates]:
    """Return what happened between each two samples, and since the last one.

    Counts within seconds of each other, as of a consumer that has just begun, would make peaks of chance.
    """
    counts = _apart([*(sample.stats for sample in history), *([now] if now else [])])
    found = [between(before, after) for before, after in pairwise(counts)]
    return [each for each in found if each is not None]


def sparkline(history: Sequence[Sample], width: float = 120, height: float = 24) -> Sparkline:
    """Draw what was acked a second within the last hour."""
    counts = _apart([each.stats for each in history if each.at >= history[-1].at - HOUR])
    acked = [max(0, b.acked - a.acked) / (b.at - a.at).total_seconds() for a, b in pairwise(counts)]
    if not acked:
        return Sparkline()
    top = max(acked)
    return Sparkline(
        path(places([each.at for each in counts[1:]], width), [each / (top or 1) for each in acked], height),
        f"between {per_second(min(acked))} and {per_second(top)}",
    )


def _apart(counts: Sequence[QueueStats]) -> list[QueueStats]:
    """Leave out those that were counted too soon after others."""
    kept: list[QueueStats] = []
    for each in counts:
        if not kept or each.at - kept[-1].at >= LEAST:
            kept.append(each)
    return kept


def throughput(rates: Sequence[Rates]) -> Chart:
    """Draw what was sent, acked and failed."""
    top = nice(max((max(each.sent, each.acked, each.failed) for each in rates), default=0))
    named: dict[str, tuple[str, Values]] = {
        "sent": ("second", [each.sent for each in rates]),
        "acked": ("first", [each.acked for each in rates]),
        "failed": ("bad", [each.failed for each in rates]),
    }
    scale = [f"{part * top:g}/s" for part in (1, 0.5, 0)]
    return _chart("Throughput", rates, named, lambda value: value / top, per_second, scale)


def times(title: str, rates: Sequence[Rates], half: Values, most: Values) -> Chart:
    """Draw how long something took: half of it, and 99 %; on a scale on which each step is as many times as long."""
    longest = max((value for value in most if value), default=0.001)
    steps = max(2, math.ceil(math.log2(longest * 1000)))
    steps += steps % 2
    scale = [show_duration(2**step / 1000) for step in (steps, steps // 2, 0)]
    named: dict[str, tuple[str, Values]] = {"half": ("first", half), "99 %": ("second", most)}
    return _chart(
        title,
        rates,
        named,
        lambda value: max(0, math.log2(value * 1000)) / steps,
        lambda v: f"< {show_duration(v)}",
        scale,
    )


def bars(upcoming: Sequence[Upcoming]) -> list[StackedBar]:
    """Draw what falls due, a bar for each span of time; heights are of the highest."""
    top = max((each.count for each in upcoming), default=0) or 1
    step = WIDTH / max(1, len(upcoming))
    return [
        StackedBar(i * step, step * 0.8, HEIGHT * each.pending / top, HEIGHT * each.retry / top, each)
        for i, each in enumerate(upcoming)
    ]


def _chart(
    title: str,
    rates: Sequence[Rates],
    named: dict[str, tuple[str, Values]],
    share: Callable[[float], float],
    shown: Callable[[float], str],
    scale: Sequence[str],
) -> Chart:
    xs = places([each.until for each in rates], WIDTH)
    lines = [
        ChartLine(name, kind, path(xs, [None if value is None else share(value) for value in values], HEIGHT))
        for name, (kind, values) in named.items()
    ]
    columns = [values for _, values in named.values()]
    rows = [
        ChartRow(each.until, x, ["–" if values[i] is None else shown(values[i] or 0) for values in columns])
        for i, (each, x) in enumerate(zip(rates, xs, strict=True))
    ]
    return Chart(title, lines, rows, scale)


def places(moments: Sequence[dt.datetime], width: float) -> list[float]:
    """Return where moments are, from left to right."""
    if not moments:
        return []
    whole = (moments[-1] - moments[0]).total_seconds() or 1
    return [round(width * (each - moments[0]).total_seconds() / whole, 1) for each in moments]


def path(xs: Sequence[float], shares: Values, height: float) -> str:
    """Return the path through points, 0 below and 1 on top; it breaks off where there is none, or none for long."""
    usual = sorted(b - a for a, b in pairwise(xs))
    longest = GAP * usual[len(usual) // 2] if usual else 0
    steps: list[str] = []
    last: float | None = None
    for x, share in zip(xs, shares, strict=True):
        if share is None:
            last = None
            continue
        goes_on = last is not None and x - last <= longest
        steps.append(
            f"{'L' if goes_on else 'M'}{x:g} {height - share * (height - 2) - 1:.1f}" + ("" if goes_on else "h.1")
        )
        last = x
    return "".join(steps)


def per_second(rate: float) -> str:
    """Return a rate with as many digits as mean something."""
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def nice(top: float) -> float:
    """Return the end of a scale: the least 1, 2 or 5 times a power of ten that is not below `top`."""
    if top <= 0:
        return 1
    unit: float = 10 ** math.floor(math.log10(top))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= top * 0.999)
