"""The fields of forms in which somebody writes a message: its payload, its headers, and lengths of time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from delayq.model.configuration import check_retries
from delayq.model.units import delay_ms, lease_ms, parse_duration
from delayq.web.forms import InvalidField, field

KINDS = {"json": "JSON", "text": "text, sent as a JSON string", "bytes": "bytes, as they are in UTF-8"}
"""What a payload that somebody has written can be."""

_BYTE = re.compile(r"\(byte (\d{1,9})\)$", re.ASCII)


def payload_of(form: Mapping[str, str], name: str = "payload") -> Any:
    """Return the payload that a form holds, JSON as it is written; raises InvalidField."""
    text, kind = form.get(name, "").replace("\r\n", "\n"), form.get("kind", "json")
    if kind not in KINDS:
        raise InvalidField("kind", f"payload kind {kind!r} is unknown: choose one of {', '.join(KINDS)}")
    return text.encode() if kind == "bytes" else text if kind == "text" else msgspec.Raw(compact(text, name))


def compact(text: str, name: str) -> bytes:
    """Return JSON without the spaces between its parts; raises InvalidField."""
    json_of(text, name)
    return msgspec.json.format(text.encode(), indent=-1)


def json_of(text: str, name: str) -> Any:
    """Read the JSON of a field; raises InvalidField with the line and the column of what is wrong."""
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
    """Return the headers that a form holds: a JSON object, or lines of ``name=value``; raises InvalidField."""
    text = form.get("headers", "").strip()
    if text.startswith("{"):
        found: dict[str, Any] = json_of(text, "headers")
        return found
    headers: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if line.strip() and not (name.strip() and equals):
            raise InvalidField("headers", f"line {number} of the headers is {line!r}: write it as in tenant=acme")
        if name.strip() in headers:
            raise InvalidField("headers", f"line {number} of the headers names {name.strip()!r} again: remove one")
        if line.strip():
            headers[name.strip()] = value.strip()
    return headers


def headers_text(headers: Mapping[str, Any]) -> str:
    """Return headers as `headers_of` reads them: lines where these say the same, else a JSON object."""
    text = "\n".join(f"{name}={value}" for name, value in headers.items())
    with contextlib.suppress(InvalidField):
        if headers_of({"headers": text}) == headers:
            return text
    return msgspec.json.format(msgspec.json.encode(headers), indent=2).decode()


def delay_of(form: Mapping[str, str], name: str) -> float | None:
    """Return the seconds that a field holds, None where it is empty; raises InvalidField."""
    text = form.get(name, "").strip()
    with field(name):
        seconds = parse_duration(text) if text else None
        delay_ms(seconds or 0, name)  # which checks it
    return seconds


def retries_of(form: Mapping[str, str]) -> int | None:
    """Return the deliveries after the first one, None where the field is empty; raises InvalidField."""
    text = form.get("retries", "").strip()
    if not text:
        return None
    if not (text.isdecimal() and len(text) < 9):
        raise InvalidField("retries", f"{text!r} is not a number of retries: write it as in 5, or leave it out")
    with field("retries"):
        return check_retries(int(text))


def timeout_of(form: Mapping[str, str]) -> float | None:
    """Return the seconds that a handler may run, None where the field is empty; raises InvalidField."""
    text = form.get("timeout", "").strip()
    with field("timeout"):
        seconds = parse_duration(text) if text else None
        lease_ms(1 if seconds is None else seconds, "timeout")  # which checks it
    return seconds
