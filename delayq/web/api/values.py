"""What requests and answers of the API are made of: payloads, headers, and pages."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import FORMAT, JSON, RAW, Envelope, Headers, open_body
from delayq.web.forms import InvalidField


class Given(msgspec.Struct, forbid_unknown_fields=True):
    """What a request holds: a field that is not known is refused."""


class Answer(msgspec.Struct):
    """What an answer holds: later versions may add fields."""


class Base64(Given):
    """Bytes.

    Attributes:
        base64: the bytes, in base64 with padding.
    """

    base64: str


HeaderValues: TypeAlias = dict[str, str | int | float | bool | Base64 | None]
"""Headers of a message; bytes are ``{"base64": "…"}``."""

Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]

PayloadKind: TypeAlias = Literal["json", "bytes", "unread", "gone"]

A = TypeVar("A", bound=msgspec.Struct)


def of(kind: type[A], seen: Any, **more: Any) -> A:
    """Make an answer of the attributes of `seen` that have the names of its fields, and of `more`."""
    known = {name: getattr(seen, name) for name in kind.__struct_fields__ if name not in more and hasattr(seen, name)}
    return kind(**known | more)


def payload_fields(envelope: Envelope | None, size: int | None = None) -> dict[str, Any]:
    """Return the fields of an answer that tell a payload.

    Args:
        size: bytes of what is stored, where it was not read because it is large.
    """
    known: dict[str, Any] = {"payload_bytes": size or None, "payload": UNSET, "payload_base64": UNSET}
    if envelope is None:
        return known | {"payload_kind": "unread" if size else "gone"}
    known["payload_bytes"] = len(envelope.body)
    if envelope.kind == JSON:
        try:
            open_body(envelope)  # which reads all of it
        except UnreadableEnvelope:  # another program has written it
            pass
        else:
            return known | {"payload_kind": "json", "payload": msgspec.Raw(envelope.body)}
    return known | {"payload_kind": "bytes", "payload_base64": base64.b64encode(envelope.body).decode()}


def payload_value(payload: Any, body: bytes = b"") -> dict[str, Any]:
    """Return the fields of an answer that tell a payload which was read.

    Args:
        body: JSON as it is stored, where that is known: it may have numbers that no number of Python's is.
    """
    kind, encoded = (RAW, payload) if isinstance(payload, bytes) else (JSON, body or msgspec.json.encode(payload))
    return payload_fields(Envelope(FORMAT, kind, encoded, 0))


def header_values(headers: Mapping[str, Any] | None) -> HeaderValues:
    """Return headers as an answer has them."""
    return {
        name: Base64(base64=base64.b64encode(value).decode()) if isinstance(value, bytes) else value
        for name, value in (headers or {}).items()
    }


def headers_of(given: HeaderValues) -> Headers:
    """Return headers of a request as they are sent; raises InvalidInput."""
    return {
        name: unbase64(value.base64, f"headers.{name}") if isinstance(value, Base64) else value
        for name, value in given.items()
    }


def payload_of(payload: msgspec.Raw | UnsetType, encoded: str | UnsetType) -> Any:
    """Return the payload of a request as it is sent: JSON as it is written, or bytes; UNSET where none is given."""
    if payload is not UNSET and encoded is not UNSET:
        raise InvalidField("payload_base64", "payload and payload_base64 are both given: give one of them")
    if isinstance(encoded, str):
        return unbase64(encoded, "payload_base64")
    if isinstance(payload, msgspec.Raw):
        try:
            msgspec.json.decode(payload)  # of a raw value, not everything was looked at
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidField("payload", f"payload: {error}") from error
    return payload


def unbase64(text: str, field: str) -> bytes:
    """Return the bytes that a text in base64 holds; raises InvalidInput, naming the field."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidField(field, f"{field}: this is not base64: {error}") from error
