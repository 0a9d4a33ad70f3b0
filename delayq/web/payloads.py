"""Payloads as pages show them: JSON in lines, text, or bytes in hex; and their beginnings, in lists."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import msgspec

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import JSON
from delayq.model.message_info import MessageInfo
from delayq.model.record import Record

MOST_SHOWN = 256 * 1024  # bytes of a payload that its page shows
MOST_HEX = 4096


def payload_of(info: MessageInfo) -> dict[str, Any]:
    """Return a payload as text to be shown, what it is, its size, and whether that is all of it."""
    return _UNREADABLE if info.envelope is None else _shown(info.envelope.body, info.envelope.kind == JSON)


def payload_of_record(record: Record) -> dict[str, Any]:
    """Return the same of a record; of one that another program has appended, its fields."""
    try:
        payload, body = record.payload, record.body
    except UnreadableEnvelope:
        return _UNREADABLE
    if isinstance(payload, bytes) or body:
        return _shown(body, not isinstance(payload, bytes))
    return _shown(msgspec.json.encode(payload), True) | {"kind": "fields of another program"}


_UNREADABLE = {"text": "", "kind": "gone or unreadable", "size": None, "cut": False}


def _shown(body: bytes, is_json: bool) -> dict[str, Any]:
    part = body[:MOST_SHOWN]
    if is_json:
        return {"text": pretty(part), "kind": "JSON", "size": len(body), "cut": len(part) < len(body)}
    try:
        text = body[:MOST_SHOWN].decode()
    except UnicodeDecodeError:
        text = ""
    if text and not any(unicodedata.category(char) == "Cc" and char not in "\n\r\t" for char in text):
        return {"text": text, "kind": "text in bytes", "size": len(body), "cut": len(part) < len(body)}
    return {"text": _hex(body[:MOST_HEX]), "kind": "bytes", "size": len(body), "cut": len(body) > MOST_HEX}


def pretty(body: bytes) -> str:
    """Return JSON in lines, as far as it can be read; numbers as they are written."""
    try:
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")


def value_of(value: object) -> str:
    """Return the value of a header, as a form takes it."""
    return repr(value) if isinstance(value, bytes) else value if isinstance(value, str) else json.dumps(value)


def _hex(body: bytes) -> str:
    lines = (body[start : start + 16] for start in range(0, len(body), 16))
    return "\n".join(f"{16 * n:06x}  {line.hex(' '):<47}  {_ascii(line)}" for n, line in enumerate(lines))


def _ascii(line: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)  # what ASCII prints


def preview(info: MessageInfo, most: int = 120) -> str:
    """Return the beginning of a payload as text, or of what it is in bytes."""
    return "" if info.body is None else _beginning(info.body, most)


def preview_of_record(record: Record, most: int = 120) -> str:
    """Return the beginning of what a record holds."""
    try:
        body = record.body
    except UnreadableEnvelope:
        return "(unreadable)"
    text = "" if body else str(record.payload or "")
    return _beginning(body or text.encode(), most)


def _beginning(body: bytes, most: int) -> str:
    text = body[: 4 * most].decode(errors="replace")
    if "\ufffd" in text[:-1]:
        return body[: most // 3].hex(" ")
    return text if len(text) <= most else text[:most] + "…"


def size(count: float | None) -> str:
    """Return a number of bytes, as ``512 B`` or ``1.4 MB``; a dash for None."""
    if count is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit fits all")
