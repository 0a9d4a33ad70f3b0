"""Dead letters: of what they died, and bringing back or deleting those that a filter means."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.units import timestamp_ms
from delayq.operations.bulk.causes import causes
from delayq.web import meant, path_params, render, tab_counts
from delayq.web.actions import ActionRequest
from delayq.web.filters import MessageFilter
from delayq.web.forms import InvalidField, Refusal
from delayq.web.render import NavLink
from delayq.web.request_context import visit

MOST = 5000
"""Dead letters that are grouped."""

MOST_CAUSES = 100  # that are shown


async def dead(request: Request) -> Response:
    """Show a filter with what it matches, and the causes, the one that killed last first."""
    queue, known = await path_params.queue_of(request), visit(request)
    matches = await _matches(request, queue)
    if known.refusal is None:
        known.refusal = matches["wrong"]
    stats, counts = await tab_counts.count(queue)
    found = await queue.execute(causes, MOST, render.redaction(request).text, timestamp_ms(stats.at))
    latest = sorted(found.causes, key=lambda each: each.last_at, reverse=True)[:MOST_CAUSES]
    return render.page(request, "dead.html", found=found, causes=latest, now=stats.at, counts=counts, **matches)


async def live_matches(request: Request) -> Response:
    """Show what the filter that somebody types matches."""
    matches = await _matches(request, await path_params.queue_of(request))
    return HTMLResponse(render.render(request, "_matches.html", **matches))


async def _matches(request: Request, queue: Queue) -> dict[str, Any]:
    """Look for a moment at what the filter of the query matches; where it cannot be used, say what is wrong."""
    redaction = render.redaction(request)
    try:
        wanted = MessageFilter.of({**request.query_params, "state": "dead"}, redaction)
        deed = ActionRequest(act="requeue", filter=wanted, page="dead")
        return {"filter": wanted, "matched": await meant.look(queue, deed), "wrong": None}
    except InvalidInput as error:
        wrong = Refusal(400, str(error), error.field if isinstance(error, InvalidField) else "")
        return {"filter": MessageFilter(state="dead", redaction=redaction), "matched": None, "wrong": wrong}


TAB = NavLink("Dead letters", "dead")
ROUTES = [
    Route("/{server:name}/queues/{queue:name}/dead", dead, name="dead"),
    Route("/{server:name}/queues/{queue:name}/dead/matches", live_matches, name="matches"),
]
