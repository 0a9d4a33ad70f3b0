"""Editing a dead letter, which requeues it with its new content."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.envelope import JSON
from delayq.model.message_info import MessageInfo
from delayq.model.units import from_ms, timestamp_ms
from delayq.web import audit, path_params, render, tab_counts
from delayq.web.error_pages import back_on
from delayq.web.message_fields import check_shown, compact, delay_of, json_headers, timeout_of
from delayq.web.payloads import MOST_SHOWN, pretty
from delayq.web.redaction import Redaction
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page


async def editor(request: Request) -> Response:
    """Show the form."""
    info = await _dead(request)
    redaction, (_, counts) = render.redaction(request), await tab_counts.count(await path_params.queue_of(request))
    return render.page(
        request, "edit_dead_letter.html", info=redaction.info(info), counts=counts, **_known(info, redaction)
    )


@back_on(editor)
async def edit(request: Request) -> Response:
    """Requeue the dead letter with the content of the form, unless it has died again since."""
    queue, form = await path_params.queue_of(request), visit(request).form
    message_id = request.path_params["id"]
    died_at = _died_at(form.get("died", ""))
    await check_shown(request, queue, message_id, form)
    headers = json_headers(form["headers"].strip() or "{}") if "headers" in form else None
    payload: Any = msgspec.UNSET
    if "payload" in form:
        text = form["payload"].replace("\r\n", "\n")
        payload = text.encode() if form.get("kind") == "text" else msgspec.Raw(compact(text, "payload"))
    delay = delay_of(form, "delay") or 0
    timeout: Any = timeout_of(form) if "timeout" in form else msgspec.UNSET
    async with audit.audited(request, "edit", queue=queue.name, id=message_id) as line:
        if await queue.dead.edit(message_id, payload, headers, delay=delay, died_at=died_at, timeout=timeout):
            notice = f"{message_id} is scheduled again with your changes."
        elif await _is_dead(queue, message_id):
            notice = "Reload this page to see its current content; what you have written here is not sent."
            raise HTTPException(409, f"{message_id} has died again since you opened it: nothing was changed. {notice}")
        else:
            line["outcome"] = notice = f"{message_id} has left the dead letters: nothing was changed."
    return audit.back(request, notice, "message")


async def _dead(request: Request) -> MessageInfo:
    queue, message_id = await path_params.queue_of(request), request.path_params["id"]
    info = await queue.get(message_id)
    if info is None or info.state != "dead":
        raise HTTPException(404, f"{message_id} is not a dead letter of {queue.name}.")
    return info


async def _is_dead(queue: Queue, message_id: str) -> bool:
    info = await queue.get(message_id)
    return info is not None and info.state == "dead"


def _known(info: MessageInfo, redaction: Redaction) -> dict[str, Any]:
    """Return the initial content of the form; the payload is None if it cannot be edited as text."""
    assert info.died_at is not None, "it is dead"
    text, kind = None, "json"
    if info.envelope is not None and len(info.envelope.body) <= MOST_SHOWN:
        kind = "json" if info.envelope.kind == JSON else "text"
        text = pretty(info.envelope.body) if kind == "json" else _text(info.envelope.body)
    plain = {name: value for name, value in (info.headers or {}).items() if not isinstance(value, bytes)}
    return {
        "payload": "" if info.envelope is None else text,
        "kind": kind,
        "headers": msgspec.json.format(msgspec.json.encode(plain), indent=2).decode(),
        "has_bytes": len(plain) < len(info.headers or {}),
        "hidden": redaction.hidden(info),
        "died": timestamp_ms(info.died_at),
        "timeout": "" if info.timeout is None else f"{info.timeout:.10g}s",
    }


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _died_at(text: str) -> Any:
    if not (text.isdecimal() and len(text) < 16):  # milliseconds
        raise InvalidInput(f"{text!r} is not a time of death: reload the page")
    return from_ms(int(text))


ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/messages/{id:name}/edit", editor, name="editor"),
    Page(ACT, "/{server:name}/queues/{queue:name}/messages/{id:name}/edit", edit, name="edit"),
]
