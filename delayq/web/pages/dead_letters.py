"""Dead letters: their causes, and requeueing or deleting those that match a filter."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.web import meant, path_params, render, tab_counts
from delayq.web.filters import MessageFilter
from delayq.web.forms import InvalidField, Refusal
from delayq.web.render import NavLink
from delayq.web.request_context import visit
from delayq.web.routes import VIEW, Page

MOST_CAUSES = 100  # shown


async def dead(request: Request) -> Response:
    """Show a filter with its number of matches, and the causes, the latest first."""
    queue, known = await path_params.queue_of(request), visit(request)
    matches = await _matches(request, queue)
    if known.refusal is None:
        known.refusal = matches["wrong"]
    stats, counts = await tab_counts.count(queue)
    found = await queue.dead.causes(meant.MOST_GROUPED, shown=render.redaction(request).text, now=stats.at)
    latest = sorted(found.causes, key=lambda each: each.last_at, reverse=True)[:MOST_CAUSES]
    return render.page(request, "dead_letters.html", found=found, causes=latest, now=stats.at, counts=counts, **matches)


async def live_matches(request: Request) -> Response:
    """Show the number of matches while somebody types a filter."""
    matches = await _matches(request, await path_params.queue_of(request))
    return HTMLResponse(render.render(request, "_matches.html", **matches))


async def _matches(request: Request, queue: Queue) -> dict[str, Any]:
    """Count for a moment what the filter of the query matches, or say what is wrong with it."""
    redaction = render.redaction(request)
    try:
        wanted = MessageFilter.of({**request.query_params, "state": "dead"}, redaction)
        return {"filter": wanted, "matched": await meant.look(queue, wanted), "wrong": None}
    except InvalidInput as error:
        wrong = Refusal(400, str(error), error.field if isinstance(error, InvalidField) else "")
        return {"filter": MessageFilter(state="dead", redaction=redaction), "matched": None, "wrong": wrong}


TAB = NavLink("Dead letters", "dead")
ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/dead", dead, name="dead"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/dead/matches", live_matches, name="matches"),
]
