"""Payloads and headers as cells of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from delayq.model.envelope import JSON, Envelope

HeaderCell: TypeAlias = list[tuple[str, str | None]]


def payload_cell(envelope: Envelope) -> str | None:
    """Return the JSON text of a payload; null for raw bytes, and for bytes that are not text."""
    if envelope.kind != JSON:
        return None
    try:
        return envelope.body.decode()
    except UnicodeDecodeError:
        return None


def headers_cell(headers: Mapping[str, Any] | None) -> HeaderCell:
    """Return headers as text: strings unchanged, bytes as base64, numbers and booleans as in JSON; None is null."""
    return [(name, _text(value)) for name, value in headers.items()] if headers else []


def value_cell(value: Any) -> str | None:
    """Return a decoded payload as JSON text; null for raw bytes."""
    return None if isinstance(value, bytes) else msgspec.json.encode(value).decode()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    text = msgspec.json.encode(value).decode()
    return text.strip('"') if isinstance(value, bytes) else text
