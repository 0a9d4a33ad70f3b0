"""The page that shows the figures: a single, self-contained file in which no message text can run as a script."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delayq.errors import InvalidInput
from delayq.model.extras import install
from delayq.model.show import or_dash, show_count, show_duration
from delayq.spark.reporting.charts import LineChart, Series, count_scale, duration_scale

POINTS = 200
"""The most spans in a chart; more would be finer than a screen."""

MOST_QUEUES = 30
"""How many queues get charts: those with the most deliveries."""

MOST_ERRORS = 20
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1440, 10_080, 43_200)
_SHARES = ("p50", "p90", "p99", "max")

Row = Mapping[str, Any]


def page(tables: Mapping[str, pa.Table], spans: pa.Table, step: int, title: str = "delayq report") -> str:
    """Return the page that shows figures, as HTML.

    Args:
        tables: those of `Figures`, by name.
        spans: figures like `Figures.minutes`, for spans of `step` minutes.

    Raises:
        InvalidInput: jinja2 is missing.
    """
    try:
        from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  # of the extra that the pipeline needs
    except ImportError as error:
        raise InvalidInput(f"the page needs jinja2: {install('spark')}") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"duration": _duration, "count": or_dash(show_count), "share": _share, "moment": _moment}
    template = environment.from_string(files("delayq.spark.reporting").joinpath("page.html").read_text("utf-8"))
    page: str = template.render(title=title, view=ReportView(tables, spans, step))
    return page.lstrip()


class ReportView:
    """The data for the template."""

    def __init__(self, tables: Mapping[str, pa.Table], spans: pa.Table, step: int) -> None:
        self.queues = _rows(tables["queues"])
        busiest = sorted(self.queues, key=lambda row: -row["delivered"])[:MOST_QUEUES]
        self._shown = {row["queue"] for row in busiest}
        self._step = step
        self._spans = _by_queue(spans)
        self._attempts = _by_queue(tables["attempts"])
        self._deaths = _by_queue(tables["deaths"])

    @cached_property
    def sections(self) -> list[Section]:
        """The sections, one for each queue."""
        return [
            Section(
                row, self._step, *(each.get(row["queue"], []) for each in (self._spans, self._attempts, self._deaths))
            )
            for row in self.queues
            if row["queue"] in self._shown
        ]

    @property
    def hidden(self) -> int:
        """How many queues have no charts."""
        return len(self.queues) - len(self._shown)

    @property
    def first_at(self) -> dt.datetime | None:
        """The first minute with events."""
        return min((row["first_at"] for row in self.queues), default=None)

    @property
    def last_at(self) -> dt.datetime | None:
        """The last minute with events."""
        return max((row["last_at"] for row in self.queues), default=None)


class Section:
    """The section of a queue."""

    def __init__(
        self, totals: Row, step: int, spans: Sequence[Row], attempts: Sequence[Row], deaths: Sequence[Row]
    ) -> None:
        self.totals = totals
        self.name = totals["queue"]
        self.attempts = attempts
        self.deaths = deaths[:MOST_ERRORS]
        self.other_deaths = sum(row["deaths"] for row in deaths[MOST_ERRORS:])
        self.most_deaths = max((row["deaths"] for row in deaths), default=0)
        self._step = dt.timedelta(minutes=step)
        self._spans = spans

    @cached_property
    def charts(self) -> list[LineChart]:
        """The charts: sent and acked, retried and dead, lateness, and duration."""
        per = f"per {_span(self._step)}"
        return [
            self._counts(f"Sent, delivered and acked, {per}", ("sent", "delivered", "acked")),
            self._counts(f"Retried and dead, {per}", ("retried", "died")),
            self._lengths("Lateness of deliveries", "late"),
            self._lengths("Time from delivery to ack or nack", "took"),
        ]

    def _counts(self, title: str, names: Sequence[str]) -> LineChart:
        times = _without_gaps([row["minute"] for row in self._spans], self._step)
        found = {row["minute"]: row for row in self._spans}
        most = max((row[name] for row in self._spans for name in names), default=0)
        times = times if most else []  # if all are zero, there is nothing to draw
        series = [Series(name, [found[time][name] if time in found else 0 for time in times]) for name in names]
        summary = ", ".join(f"{name} {self.totals[name]:,}" for name in names) + " in all"
        return LineChart(title, summary, times, self._step, series, count_scale(most), show_count)

    def _lengths(self, title: str, name: str) -> LineChart:
        times = [row["minute"] for row in self._spans]
        series = [Series(share, [row[f"{name}_{share}"] for row in self._spans]) for share in _SHARES]
        values = [value for each in series for value in each.values if value is not None]
        totals = [(share, self.totals[f"{name}_{share}"]) for share in _SHARES]
        summary = ", ".join(f"{share} {_duration(value)}" for share, value in totals) + " over all"
        scale = duration_scale(min(values, default=0), max(values, default=1))
        return LineChart(title, summary, times, self._step, series, scale, show_duration)


def step_of(minutes: pa.Table) -> int:
    """Return the minutes in a span, so that the whole time of `Figures.minutes` has at most `POINTS` spans."""
    if not len(minutes):
        return 1
    ends = pc.min_max(minutes["minute"]).as_py()
    count = (ends["max"] - ends["min"]) / dt.timedelta(minutes=1) + 1
    return next((step for step in _STEPS if count / step <= POINTS), math.ceil(count / POINTS))


def _rows(table: pa.Table) -> list[Row]:
    rows: list[dict[str, Any]] = table.to_pylist()
    # In the time zone of the session.
    return [
        {name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for name, value in row.items()}
        for row in rows
    ]


def _by_queue(table: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in _rows(table):
        found.setdefault(row["queue"], []).append(row)
    return found


def _without_gaps(times: Sequence[dt.datetime], step: dt.timedelta) -> list[dt.datetime]:
    if not times:
        return []
    return [times[0] + i * step for i in range((times[-1] - times[0]) // step + 1)]


def _span(step: dt.timedelta) -> str:
    minutes = step // dt.timedelta(minutes=1)
    for size, unit in ((1440, "day"), (60, "hour"), (1, "minute")):
        if minutes % size == 0:
            count = minutes // size
            return unit if count == 1 else f"{count} {unit}s"
    return f"{minutes} minutes"


_duration = or_dash(show_duration)


def _share(part: float | None) -> str:
    return "–" if part is None else f"{100 * part:.3g} %"


def _moment(at: dt.datetime | None) -> str:
    return "–" if at is None else f"{at:%Y-%m-%d %H:%M}"
