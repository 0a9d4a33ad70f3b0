"""A message: its details, why it has not been delivered, and its timeline."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.envelope import JSON
from delayq.model.event import NEWEST, PLACE
from delayq.model.text import is_foreign_id
from delayq.model.units import from_ms
from delayq.operations import results
from delayq.web import ledger_search, path_params, render, tab_counts
from delayq.web.payloads import payload_of, payload_of_value
from delayq.web.routes import VIEW, Page

MOST_NAME = 64  # characters of an id in a file name
LOOK_SECONDS = 0.05
"""How long a request searches the ledger, which may have millions of entries."""


async def message(request: Request) -> Response:
    """Show a message and the result of its task; for one that is gone, what the ledger knows."""
    queue, message_id = await path_params.queue_of(request), request.path_params["id"]
    if is_foreign_id(message_id):
        raise HTTPException(404, f"{message_id} is not an id that delayq can show: another program has written it.")
    info, redaction = await queue.get(message_id), render.redaction(request)
    shown = None if info is None else redaction.info(info)
    result = await queue.execute(results.seen, message_id, info)
    is_whole = request.query_params.get("whole") == "1"
    life = await _life(request, queue)
    events, link = life["events"], life["link"]
    is_open = not (info or result or events) and link  # the search in the ledger is not finished
    why = f"{message_id} is not in queue {queue.name}; the ledger is long: search further back" if is_open else None
    return render.page(
        request,
        "message.html",
        200 if info or result or events or link else 404,
        id=message_id,
        info=shown,
        why=why or await ledger_search.why(queue, message_id, events[::-1], redaction),
        payload=None if info is None or shown is None else payload_of(info, shown, is_whole),
        result=None if result is None else redaction.result(result),
        texts_of=partial(payload_of_value, whole=is_whole),
        is_whole=is_whole,
        has_ledger=(await queue.configuration()).events is not None,
        counts=(await tab_counts.count(queue))[1],
        **life,
    )


async def payload(request: Request) -> Response:
    """Send the payload as a file: its exact bytes, without hidden values."""
    queue, message_id = await path_params.queue_of(request), request.path_params["id"]
    info = None if is_foreign_id(message_id) else await queue.get(message_id)
    if info is None or info.envelope is None:
        raise HTTPException(404, f"The payload of {message_id} is gone or unreadable.")
    shown = render.redaction(request).envelope(info.envelope)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", message_id)[:MOST_NAME]
    if name != message_id:  # other ids may have the same characters left
        name += f"-{hashlib.sha256(message_id.encode()).hexdigest()[:8]}"
    file = f"{name}.{'json' if shown.kind == JSON else 'bin'}"
    headers = {"content-disposition": f'attachment; filename="{file}"'}
    return Response(shown.body, media_type="application/octet-stream", headers=headers)


async def life(request: Request) -> Response:
    """Search further back in the ledger."""
    queue = await path_params.queue_of(request)
    known = {"id": request.path_params["id"]} | await _life(request, queue)
    return HTMLResponse(render.render(request, "_life.html", **known))


async def _life(request: Request, queue: Queue) -> dict[str, Any]:
    """Search the ledger for a moment; return the variables of the template."""
    message_id, redaction = request.path_params["id"], render.redaction(request)
    events, place = await ledger_search.look(queue, message_id, _place(request), LOOK_SECONDS, redaction)
    reached = PLACE.fullmatch(place)
    return {
        "events": events,
        "link": render.query(**{"from": place}),
        "reached": from_ms(int(reached["ms"])) if reached else None,
        "now": (await queue.stats()).at,
    }


def _place(request: Request) -> str:
    place = request.query_params.get("from", NEWEST)
    if place != NEWEST and not PLACE.fullmatch(place):
        raise InvalidInput(f"{place!r} is not a position in the ledger: reload the message's page")
    return place


ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/messages/{id:name}", message, name="message"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/messages/{id:name}/payload", payload, name="payload"),
    Page(VIEW, "/{server:name}/queues/{queue:name}/messages/{id:name}/life", life, name="life"),
]
