"""The messages in a state: a list, or the results of a search, with actions on selected messages."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.placement import STATES
from delayq.web import path_params, render, tab_counts
from delayq.web.filters import MessageFilter, quoted, unquoted
from delayq.web.forms import InvalidField, Refusal
from delayq.web.redaction import in_turns
from delayq.web.render import NavLink
from delayq.web.request_context import visit
from delayq.web.routes import VIEW, Page

PAGE = 50
LARGEST = 16 * 1024  # bytes of a payload; a list reads no larger one for its preview
SEARCH_SECONDS = 0.06  # per request
MOST_FOUND = 100  # per request


async def messages(request: Request) -> Response:
    """Show a page of a state, or the results of a search so far; an id leads to its message."""
    queue, asked = await path_params.queue_of(request), request.query_params
    if message_id := asked.get("id", "").strip():
        return RedirectResponse(render.url(request, "message", **request.path_params, id=message_id), 303)
    redaction = render.redaction(request)
    known: dict[str, Any] = {"states": STATES}
    known["stats"], known["counts"] = await tab_counts.count(queue)
    try:
        known["filter"] = wanted = MessageFilter.of(asked, redaction)
        wanted.choice()
    except InvalidInput as error:
        visit(request).refusal = Refusal(400, str(error), error.field if isinstance(error, InvalidField) else "")
        known["filter"] = MessageFilter.of({"state": asked.get("state", "")}, redaction)
        return render.page(request, "messages.html", **known, page=None, rows=None)
    if not wanted.is_empty:
        found = await search(request, queue, wanted)
        return render.page(request, "messages.html", **known, **found, page=None)
    at = {name: unquoted(asked[name]) for name in ("after", "before") if asked.get(name)}
    page = await queue.page(wanted.state, limit=PAGE, largest=LARGEST, **at)
    rows, sizes = await in_turns(redaction.info, page.messages), page.sizes
    return render.page(request, "messages.html", **known, page=page, rows=rows, sizes=sizes, now=known["stats"].at)


async def more(request: Request) -> Response:
    """Continue a search: return more rows and its progress."""
    queue, wanted = (
        await path_params.queue_of(request),
        MessageFilter.of(request.query_params, render.redaction(request)),
    )
    found = await search(request, queue, wanted)
    return HTMLResponse(render.render(request, "_found.html", filter=wanted, **found))


async def search(request: Request, queue: Queue, wanted: MessageFilter) -> dict[str, Any]:
    """Search for a moment from where the previous request stopped; return the variables of the template."""
    asked = request.query_params
    behind = unquoted(asked["from"]) if asked.get("from") else None
    most = 0 if asked.get("halt") == "1" else MOST_FOUND
    found = await wanted.find(queue, behind, seconds=SEARCH_SECONDS, most=most, largest=LARGEST)
    looked, before = _number(asked.get("looked")), _number(asked.get("found"))
    place = {"from": quoted(found.cursor or ""), "looked": looked + found.looked_at, "found": before + found.matched}
    return {
        "rows": await in_turns(wanted.redaction.info, found.messages),
        "sizes": found.sizes,
        "now": (await queue.stats()).at,
        "total": found.total,
        "looked": looked + found.looked_at,
        "found": before + found.matched,
        "link": "" if found.cursor is None else render.query(**wanted.fields(), **place),
        "goes_on": found.cursor is not None and found.matched < most,
    }


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 16 else 0  # links may hold anything


TAB = NavLink("Messages", "messages")
ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/messages", messages, name="messages"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/found", more, name="found"),
]
