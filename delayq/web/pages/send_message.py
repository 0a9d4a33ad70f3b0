"""A form that sends a message; it may start as a copy of another message."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.aio import Queue
from delayq.errors import DuplicateMessage, PayloadNotSerializable, PayloadTooLarge
from delayq.model.delivery import SentMessage
from delayq.model.envelope import JSON
from delayq.model.message_ids import new_id
from delayq.model.message_info import MessageInfo
from delayq.model.show import show_away, show_size
from delayq.model.task_name import header_of
from delayq.model.units import delay_ms, parse_age, timestamp_ms
from delayq.model.validation import check_id
from delayq.web import audit, path_params, render, tab_counts
from delayq.web.background_jobs import BackgroundJobs, word_of
from delayq.web.error_pages import back_on
from delayq.web.filters import quoted, unquoted
from delayq.web.forms import InvalidField, check_choice, field
from delayq.web.message_fields import KINDS, delay_of, headers_of, headers_text, payload_of, retries_of, timeout_of
from delayq.web.payloads import MOST_SHOWN, pretty
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page

CONFLICTS = {
    "ignore": "keep that message, send nothing",
    "replace": "replace it with this one",
    "error": "show an error",
}
"""The choices of `OnConflict`, in words."""


class Draft(NamedTuple):
    """The initial content of the form."""

    task: str = ""
    kind: str = "json"
    payload: str = ""
    headers: str = ""
    retries: str = ""
    timeout: str = ""


async def compose(request: Request) -> Response:
    """Show the form: empty, or with the content of the message in the query."""
    queue, copied = await path_params.queue_of(request), unquoted(request.query_params.get("copy", ""))
    is_refused = visit(request).refusal is not None  # then the form keeps its own fields
    info = await queue.get(copied) if copied and not is_refused else None
    if info is not None and render.redaction(request).hidden(info):
        raise HTTPException(409, f"{copied} cannot be copied: this dashboard hides part of it (--redact).")
    draft = draft_of(info, copied) if copied and not is_refused else Draft()
    return render.page(
        request,
        "send_message.html",
        draft=draft,
        copied=copied,
        copy=quoted(copied),
        kinds=KINDS,
        conflicts=CONFLICTS,
        counts=(await tab_counts.count(queue))[1],
        once=new_id(),  # the message's id, if the form names none
    )


@back_on(compose)
async def send(request: Request) -> Response:
    """Send the message; a form that is sent twice sends one message."""
    queue, form = await path_params.queue_of(request), visit(request).form
    once = word_of(form)
    options = _options(form, once)
    message_id = options["id"]
    jobs: BackgroundJobs = request.app.state.jobs
    notice = f"{message_id} was already sent."
    with jobs.once(once) as is_new:
        if is_new:
            about = {"id": message_id, "copy_of": unquoted(form.get("copy", "")) or None}
            async with audit.audited(request, "send", queue=queue.name, **about) as line:
                sent = await _sent(queue, options)
                notice = line["told"] = _notice_of(sent, options["on_conflict"], (await queue.stats()).at)
    visit(request).session.notice = notice
    path = {name: request.path_params[name] for name in ("server", "queue")}
    return RedirectResponse(render.url(request, "message", **path, id=message_id), 303)


def draft_of(info: MessageInfo | None, message_id: str) -> Draft:
    """Return the form's content for a copy of a message; raises HTTPException if a form cannot hold it."""
    if info is None or info.envelope is None:
        raise HTTPException(404, f"{message_id} cannot be copied: the message or its payload is gone.")
    if info.task is None and info.occurrence is not None and info.occurrence.plan.own:
        cause = f"only the function of schedule {info.schedule} handles it. Run the schedule instead"
        raise HTTPException(409, f"{message_id} cannot be copied: {cause}.")
    headers = info.headers or {}
    if any(isinstance(value, bytes) for value in headers.values()):
        raise HTTPException(409, f"{message_id} cannot be copied into a form: one of its headers contains bytes.")
    body, kind = info.envelope.body, "json" if info.envelope.kind == JSON else "bytes"
    if len(body) > MOST_SHOWN:
        cause = f"its payload is {show_size(len(body))}, and a form takes at most {show_size(MOST_SHOWN)}"
        raise HTTPException(409, f"{message_id} cannot be copied into a form: {cause}.")
    text = pretty(body) if kind == "json" else _text(body)
    if text is None:
        raise HTTPException(409, f"{message_id} cannot be copied into a form: its payload is not text.")
    timeout = "" if info.timeout is None else f"{info.timeout:.10g}s"
    return Draft(info.task or "", kind, text, headers_text(headers), str(info.max_retries), timeout)


def _text(body: bytes) -> str | None:
    """Return bytes as text; None if a browser would not send them back unchanged."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if any(char in text for char in "\r\0") else text


def _options(form: QueryParams, once: str) -> dict[str, Any]:
    """Return the arguments of `Queue.send`; raises InvalidField.

    Without an id, the message gets the form's `once` as its id: however often the form arrives, and at any process,
    it sends one message.
    """
    on_conflict = form.get("on_conflict", "ignore")
    with field("on_conflict"):
        check_choice("choice", on_conflict, CONFLICTS)
    with field("id"):
        message_id = check_id(form.get("id", "").strip() or once)
    payload, task = payload_of(form), form.get("task") or None
    with field("task"):
        header_of(task, payload)
    return {
        "payload": payload,
        "task": task,
        **_due(form.get("when", "").strip()),
        "id": message_id,
        "on_conflict": on_conflict,
        "headers": headers_of(form),
        "expires_in": delay_of(form, "expires"),
        "max_retries": retries_of(form),
        "timeout": timeout_of(form),
    }


def _due(text: str) -> dict[str, Any]:
    if not text:
        return {}
    with field("when"):
        given = parse_age(text)
        if isinstance(given, dt.datetime):
            timestamp_ms(given, "when")  # checks it
            return {"at": given}
        delay_ms(given, "when")
    return {"delay": given}


async def _sent(queue: Queue, options: dict[str, Any]) -> SentMessage:
    try:
        return await queue.send(**options)
    except (PayloadTooLarge, PayloadNotSerializable) as error:
        raise InvalidField("payload", str(error)) from error
    except DuplicateMessage as error:
        message = f"message {options['id']} already exists: choose another id, or keep or replace that message"
        raise InvalidField("id", message) from error


def _notice_of(sent: SentMessage, on_conflict: str, now: dt.datetime) -> str:
    if sent.created:
        due = show_away(sent.due_at, now) if sent.due_at > now else "now"
        return f"Sent as {sent.id}, due {due}. The message is gone once it has been handled."
    if on_conflict == "replace":
        return f"{sent.id} existed and was replaced."
    return f"{sent.id} already exists: nothing was sent."


ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/send", compose, name="compose"),
    Page(ACT, "/{server:name}/queues/{queue:name}/send", send, name="send"),
]
