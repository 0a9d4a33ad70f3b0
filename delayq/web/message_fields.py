"""The fields of forms for messages: payload, headers and durations."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from delayq.aio import Queue
from delayq.model.backoff import check_retries
from delayq.model.envelope import check_header_names
from delayq.model.units import delay_ms, lease_ms, parse_duration
from delayq.web import render
from delayq.web.forms import InvalidField, check_choice, field

KINDS = {"json": "JSON", "text": "text, sent as a JSON string", "bytes": "bytes, in UTF-8"}
"""The types of a payload in a form."""

_BYTE = re.compile(r"\(byte (\d{1,9})\)$", re.ASCII)


def payload_of(form: Mapping[str, str], name: str = "payload") -> Any:
    """Return the payload in a form, JSON exactly as written; raises InvalidField."""
    text, kind = form.get(name, "").replace("\r\n", "\n"), form.get("kind", "json")
    with field("kind"):
        check_choice("payload type", kind, KINDS)
    return text.encode() if kind == "bytes" else text if kind == "text" else msgspec.Raw(compact(text, name))


def compact(text: str, name: str) -> bytes:
    """Return JSON without whitespace between its parts; raises InvalidField."""
    json_of(text, name)
    return msgspec.json.format(text.encode(), indent=-1)


def json_of(text: str, name: str) -> Any:
    """Read JSON from a field; raises InvalidField with the line and column of the error."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidField(name, f"the field {name} is not JSON: {error}{_position(text, str(error))}") from error


def _position(text: str, error: str) -> str:
    found = _BYTE.search(error)
    if found is None:
        return ""
    before = text.encode()[: int(found[1])].decode(errors="ignore")
    return f", line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def headers_of(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the headers in a form: a JSON object, or lines of ``name=value``; raises InvalidField."""
    text = form.get("headers", "").strip()
    if text.startswith("{"):
        return json_headers(text)
    headers: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if line.strip() and not (name.strip() and equals):
            raise InvalidField("headers", f"line {number} of the headers is {line!r}: write it like tenant=acme")
        if name.strip() in headers:
            raise InvalidField("headers", f"line {number} of the headers repeats {name.strip()!r}: remove one of them")
        if line.strip():
            headers[name.strip()] = value.strip()
    return _checked(headers)


def json_headers(text: str) -> dict[str, Any]:
    """Read headers from a JSON object; raises InvalidField."""
    return _checked(json_of(text, "headers"))


def _checked(headers: Any) -> dict[str, Any]:
    if not isinstance(headers, dict):
        raise InvalidField("headers", f"the headers are {headers!r}: write a JSON object")
    with field("headers"):
        check_header_names(headers)
    return headers


def headers_text(headers: Mapping[str, Any]) -> str:
    """Return headers as a text that `headers_of` reads: lines if they suffice, else a JSON object."""
    text = "\n".join(f"{name}={value}" for name, value in headers.items())
    with contextlib.suppress(InvalidField):
        if headers_of({"headers": text}) == headers:
            return text
    return msgspec.json.format(msgspec.json.encode(headers), indent=2).decode()


def delay_of(form: Mapping[str, str], name: str) -> float | None:
    """Return the duration in a field in seconds, None if it is empty; raises InvalidField."""
    text = form.get(name, "").strip()
    with field(name):
        seconds = parse_duration(text) if text else None
        delay_ms(seconds or 0, name)  # checks it
    return seconds


def retries_of(form: Mapping[str, str]) -> int | None:
    """Return the number of retries, None if the field is empty; raises InvalidField."""
    text = form.get("retries", "").strip()
    if not text:
        return None
    if not (text.isdecimal() and len(text) < 9):
        raise InvalidField("retries", f"{text!r} is not a number of retries: write one such as 5, or leave it empty")
    with field("retries"):
        return check_retries(int(text))


def timeout_of(form: Mapping[str, str]) -> float | None:
    """Return the time limit of a handler in seconds, None if the field is empty; raises InvalidField."""
    text = form.get("timeout", "").strip()
    with field("timeout"):
        seconds = parse_duration(text) if text else None
        lease_ms(1 if seconds is None else seconds, "timeout")  # checks it
    return seconds


async def check_shown(request: Request, queue: Queue, message_id: str, fields: Iterable[str]) -> None:
    """Raise InvalidField if one of the fields has values that this dashboard hides."""
    redaction = render.redaction(request)
    info = await queue.get(message_id) if redaction else None
    hidden = set[str]() if info is None else redaction.hidden(info)
    for name in sorted(hidden.intersection(fields)):
        raise InvalidField(name, f"the field {name} cannot be replaced: this dashboard hides part of it (--redact)")
