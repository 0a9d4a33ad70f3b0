"""Payloads as pages show them: indented JSON, text, or bytes in hex; and previews for lists."""

from __future__ import annotations

import json
import unicodedata
from functools import partial
from typing import Any

import msgspec

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import JSON, decode_json
from delayq.model.message_info import MessageInfo
from delayq.model.record import Record
from delayq.model.show import show_size
from delayq.web.redaction import Redaction

MOST_SHOWN = 256 * 1024  # bytes of a payload that its page shows
MOST_HEX = 4096
LARGEST = 16 * 1024  # bytes of a payload; a list shows no larger one, or without redaction only its beginning
MOST_WHOLE = 4 * 1024 * 1024  # bytes that its page shows on request


def payload_of(info: MessageInfo, shown: MessageInfo, whole: bool = False) -> dict[str, Any]:
    """Return a payload as text, with its type, its size, and whether it was cut.

    Args:
        shown: the message without hidden values.
        whole: show up to four megabytes, not only the beginning of a large payload.
    """
    if info.envelope is None or shown.envelope is None:
        return _UNREADABLE
    return _shown(shown.envelope.body, shown.envelope.kind == JSON, len(info.envelope.body), whole)


def payload_of_record(record: Record, redaction: Redaction) -> dict[str, Any]:
    """Return the same for a record; for an entry of another program, its fields."""
    try:
        if (envelope := record.envelope) is None:
            fields = msgspec.json.encode(redaction.headers(record.values))
            return _shown(fields, True, len(fields)) | {"kind": "fields of another program"}
    except UnreadableEnvelope:
        return _UNREADABLE
    shown = redaction.envelope(envelope)
    return _shown(shown.body, shown.kind == JSON, len(envelope.body))


def payload_of_value(value: Any, whole: bool = False) -> dict[str, Any]:
    """Return the same for what JSON holds, as the value of a task."""
    body = msgspec.json.encode(value)
    return _shown(body, True, len(body), whole)


_UNREADABLE = {"text": "", "kind": "gone or unreadable", "size": None, "cut": False}


def _shown(body: bytes, is_json: bool, size: int, whole: bool = False) -> dict[str, Any]:
    most, most_hex = (MOST_WHOLE, MOST_WHOLE // 4) if whole else (MOST_SHOWN, MOST_HEX)
    part = body[:most]
    if is_json:
        return {"text": pretty(part), "kind": "JSON", "size": size, "cut": len(part) < len(body)}
    try:
        text = part.decode()
    except UnicodeDecodeError:
        text = ""
    if text and not any(unicodedata.category(char) == "Cc" and char not in "\n\r\t" for char in text):
        return {"text": text, "kind": "bytes (text)", "size": size, "cut": len(part) < len(body)}
    return {"text": _hex(body[:most_hex]), "kind": "bytes", "size": size, "cut": len(body) > most_hex}


def pretty(body: bytes) -> str:
    """Return indented JSON, as far as it can be read, with numbers exactly as written."""
    try:
        indented: bytes = decode_json(body, partial(msgspec.json.format, indent=2))
        return indented.decode()
    except (UnreadableEnvelope, UnicodeDecodeError):
        return body.decode(errors="replace")


def value_of(value: object) -> str:
    """Return the value of a header as a form takes it."""
    return repr(value) if isinstance(value, bytes) else value if isinstance(value, str) else json.dumps(value)


def _hex(body: bytes) -> str:
    lines = (body[start : start + 16] for start in range(0, len(body), 16))
    return "\n".join(f"{16 * n:06x}  {line.hex(' '):<47}  {_ascii(line)}" for n, line in enumerate(lines))


def _ascii(line: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)  # printable ASCII


def preview(info: MessageInfo, most: int = 120) -> str:
    """Return the beginning of a payload as text, or in hex."""
    return "" if info.body is None else _beginning(info.body, most)


def preview_of_record(record: Record, redaction: Redaction, most: int = 120) -> str:
    """Return the beginning of a record's payload.

    A large payload with hidden values is not searched for its preview: the list has many, and others wait meanwhile.
    """
    try:
        envelope = record.envelope
    except UnreadableEnvelope:
        return "(unreadable)"
    if envelope is None:
        return _beginning(str(redaction.headers(record.values)).encode(), most)
    if redaction and len(envelope.body) > LARGEST:
        return f"({show_size(len(envelope.body))})"
    return _beginning(redaction.envelope(envelope).body, most)


def _beginning(body: bytes, most: int) -> str:
    text = body[: 4 * most].decode(errors="replace")
    if "\ufffd" in text[:-1]:
        return body[: most // 3].hex(" ")
    return text if len(text) <= most else text[:most] + "…"
