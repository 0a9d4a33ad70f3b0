"""A topic: its groups, and a page of its records, the newest first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from delayq.model.chart import TimeAxis
from delayq.operations.topics import read
from delayq.web import charts, path_params, render
from delayq.web.charts import Chart, LagCount
from delayq.web.group_changes import BEGINNINGS
from delayq.web.payloads import preview_of_record
from delayq.web.poller import watch_of
from delayq.web.record_keys import key_of, place_of
from delayq.web.redaction import in_turns
from delayq.web.routes import VIEW, Page
from delayq.web.topic_snapshot import REMEMBER_SECONDS

PAGE = 20  # records
MOST_GROUPS = 200
MOST_TEXT = 300  # characters of a record


async def topic(request: Request) -> Response:
    """Show a topic; this does not append due records."""
    found, redaction = await path_params.topic_of(request), render.redaction(request)
    watch = watch_of(request)
    before = request.query_params.get("before", "")
    records = await found.execute(read.records_before, place_of(before) if before else None, PAGE + 1)
    seen = await watch.topics.look(found.name)
    return render.page(
        request,
        "topic.html",
        topic=found.name,
        seen=seen,
        beginnings=BEGINNINGS,
        chart=_drawn(watch.topics.lags(found.name)) if seen.groups else None,
        groups=seen.groups[:MOST_GROUPS],
        more_groups=max(0, len(seen.groups) - MOST_GROUPS),
        records=await in_turns(
            lambda each: (key_of(each.place), each, preview_of_record(each, redaction, MOST_TEXT)), records[:PAGE]
        ),
        is_first=not before,
        before=key_of(records[PAGE - 1].place) if len(records) > PAGE else None,
    )


def _drawn(counted: Sequence[LagCount]) -> Chart | None:
    """Draw the lag over the last hour, as far as this dashboard has counted it."""
    if not counted:
        return None
    now = dt.datetime.now(dt.UTC)
    return charts.lag(counted, TimeAxis(now - charts.HOUR, now), dt.timedelta(seconds=REMEMBER_SECONDS))


ROUTES = [Page(VIEW, "/{server:name}/topics/{topic:name}", topic, name="topic")]
