"""The charts of a queue: its last hour or day, and what falls due."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from delayq.aio import Queue
from delayq.model.chart import TimeAxis
from delayq.model.queue_stats import EPOCH
from delayq.model.sample import Sample
from delayq.web import charts as drawing
from delayq.web import path_params, render
from delayq.web.routes import VIEW, Page


class Span(NamedTuple):
    """How far back the charts go, and the time between their samples."""

    length: dt.timedelta
    step: dt.timedelta


class DueRange(NamedTuple):
    """How far ahead the chart of upcoming messages goes, and the time that each bar covers."""

    length: dt.timedelta
    bar: dt.timedelta


SPANS = {
    "hour": Span(dt.timedelta(hours=1), dt.timedelta(minutes=1)),
    "day": Span(dt.timedelta(days=1), dt.timedelta(minutes=10)),
}
DUE_RANGES = {
    "minute": DueRange(dt.timedelta(minutes=1), dt.timedelta(seconds=1)),
    "hour": DueRange(dt.timedelta(hours=1), dt.timedelta(minutes=1)),
    "day": DueRange(dt.timedelta(days=1), dt.timedelta(minutes=30)),
}


async def charts(request: Request) -> Response:
    """Return the charts, redrawn."""
    found = await drawn(request, await path_params.queue_of(request))
    return HTMLResponse(render.render(request, "_charts.html", **found))


async def drawn(request: Request, queue: Queue) -> dict[str, Any]:
    """Return the variables of the charts' template; an unknown span or range means an hour."""
    asked = request.query_params
    span, due = asked.get("span", ""), asked.get("due", "")
    span, due = span if span in SPANS else "hour", due if due in DUE_RANGES else "hour"
    stats, samples, upcoming = await asyncio.gather(queue.stats(), queue.samples(), queue.upcoming(*DUE_RANGES[due]))
    length, step = SPANS[span]
    time = TimeAxis(stats.at - length, stats.at)
    history = _thinned(samples, time.start, step)
    rates = drawing.rates_of(history, stats)
    lateness = [each.lateness_p50 for each in rates], [each.lateness_p99 for each in rates]
    handling = [each.handler_time_p50 for each in rates], [each.handler_time_p99 for each in rates]
    found = [
        drawing.backlog([*(each.stats for each in history), stats], time, step),
        drawing.throughput(rates, time, step),
        drawing.times("Lateness", rates, *lateness, time, step),
        drawing.times("Handler time", rates, *handling, time, step),
    ]
    return {"span": span, "due": due, "charts": found, "falling": drawing.due(f"Next {due}", upcoming)}


def _thinned(samples: list[Sample], start: dt.datetime, step: dt.timedelta) -> list[Sample]:
    """Return the first sample of each step since `start`; steps start at round times, as samples do."""
    kept = {(each.at - EPOCH) // step: each for each in reversed(samples) if each.stats.at >= start}
    return list(kept.values())[::-1]


ROUTES = [Page(VIEW, "/{server:name}/queues/{queue:name}/charts", charts, name="charts")]
