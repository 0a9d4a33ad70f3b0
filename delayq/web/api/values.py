"""The parts of requests and answers: payloads, headers and pages."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import FORMAT, JSON, RAW, Envelope, Headers, check_header_names, open_body
from delayq.model.units import MAX_LEASE_MS, MAX_PAUSE_MS, delay_ms, timestamp_ms
from delayq.web.forms import InvalidField, field
from delayq.web.redaction import Redaction


class Given(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a request; unknown fields are refused."""


class Answer(msgspec.Struct):
    """The fields of an answer; later versions may add fields."""


class Base64(Given):
    """Bytes.

    Attributes:
        base64: the bytes, in base64 with padding.
    """

    base64: str


HeaderValues: TypeAlias = dict[str, str | int | float | bool | Base64 | None]
"""Headers of a message; bytes are ``{"base64": "…"}``."""

Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Timeout: TypeAlias = Annotated[float, Meta(ge=0.001, le=MAX_LEASE_MS / 1000)]
Results: TypeAlias = Annotated[float, Meta(ge=0.001, le=MAX_PAUSE_MS / 1000)]
Retries: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]
Moment: TypeAlias = Annotated[dt.datetime, Meta(tz=True)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]

PayloadKind: TypeAlias = Literal["json", "bytes", "unread", "gone"]

A = TypeVar("A", bound=msgspec.Struct)
_UNIT = re.compile("_(seconds|per_second|bytes)$")


def of(kind: type[A], seen: Any, **more: Any) -> A:
    """Make an answer from the attributes of `seen` that match its fields, with or without a unit, and from `more`."""
    names = {name: name if hasattr(seen, name) else _UNIT.sub("", name) for name in kind.__struct_fields__}
    known = {name: getattr(seen, own) for name, own in names.items() if name not in more and hasattr(seen, own)}
    return kind(**known | more)


def arguments(given: Given, *left_out: str) -> dict[str, Any]:
    """Return the fields of a request as the arguments of a method, which have no unit in their names."""
    return {_UNIT.sub("", name): getattr(given, name) for name in given.__struct_fields__ if name not in left_out}


def payload_fields(envelope: Envelope | None, redaction: Redaction, size: int | None = None) -> dict[str, Any]:
    """Return the fields of an answer for a payload, without hidden values.

    Args:
        size: the stored bytes, if the payload was too large to be read.
    """
    known: dict[str, Any] = {"payload_bytes": size or None, "payload": UNSET, "payload_base64": UNSET}
    if envelope is None:
        return known | {"payload_kind": "unread" if size else "gone"}
    known["payload_bytes"], shown = len(envelope.body), redaction.envelope(envelope)
    if shown.kind == JSON:
        try:
            open_body(shown)  # which reads all of it
        except UnreadableEnvelope:  # another program has written it
            pass
        else:
            return known | {"payload_kind": "json", "payload": msgspec.Raw(shown.body)}
    return known | {"payload_kind": "bytes", "payload_base64": base64.b64encode(shown.body).decode()}


def envelope_of(payload: Any) -> Envelope:
    """Return an envelope that holds a decoded payload."""
    if isinstance(payload, bytes):
        return Envelope(FORMAT, RAW, payload, 0)
    return Envelope(FORMAT, JSON, msgspec.json.encode(payload), 0)


def header_values(headers: Mapping[str, Any] | None) -> HeaderValues:
    """Return headers as an answer has them."""
    return {
        name: Base64(base64=base64.b64encode(value).decode()) if isinstance(value, bytes) else value
        for name, value in (headers or {}).items()
    }


def headers_of(given: HeaderValues) -> Headers:
    """Return the headers of a request as they are sent; raises InvalidInput."""
    for name in given:
        with field(f"headers.{name}"):
            check_header_names([name])
    return {
        name: unbase64(value.base64, f"headers.{name}") if isinstance(value, Base64) else value
        for name, value in given.items()
    }


def payload_of(payload: msgspec.Raw | UnsetType, encoded: str | UnsetType) -> Any:
    """Return the payload of a request as it is sent: JSON exactly as written, or bytes; UNSET if there is none."""
    if payload is not UNSET and encoded is not UNSET:
        raise InvalidField("payload_base64", "payload and payload_base64 are both given: give one of them")
    if isinstance(encoded, str):
        return unbase64(encoded, "payload_base64")
    if isinstance(payload, msgspec.Raw):
        try:
            msgspec.json.decode(payload)  # msgspec has not checked all of a raw value
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidField("payload", f"payload: {error}") from error
    return payload


def required_payload(payload: msgspec.Raw | UnsetType, encoded: str | UnsetType) -> Any:
    """Return the payload of a request as it is sent; raises InvalidInput if there is none."""
    found = payload_of(payload, encoded)
    if found is UNSET:
        raise InvalidField("payload", "payload is missing: give it, or payload_base64")
    return found


def check_due(delay_seconds: float | None, at: dt.datetime | None) -> None:
    """Raise InvalidInput if both a delay and a time are given."""
    if delay_seconds is not None and at is not None:
        raise InvalidField("at", "delay_seconds and at are both given: give one of them")
    check_times(delay_seconds=delay_seconds)
    check_moments(at=at)


def check_confirmed(confirm: str, kind: str, name: str) -> None:
    """Raise InvalidInput unless a request repeats the name of its target."""
    if confirm != name:
        raise InvalidField("confirm", f"confirm is {confirm!r}: give the name of the {kind}, {name!r}")


def check_times(**seconds: float | None) -> None:
    """Raise InvalidInput, naming the field, if a duration is past the year 9999."""
    for name, given in seconds.items():
        with field(name):
            delay_ms(given or 0, name)


def check_moments(**moments: dt.datetime | None) -> None:
    """Raise InvalidInput, naming the field, if a time is before 1970."""
    for name, given in moments.items():
        with field(name):
            if given is not None:
                timestamp_ms(given, name)


@contextlib.contextmanager
def prefixed(place: str) -> Iterator[None]:
    """Prefix the field of an error with its place in the request."""
    try:
        yield
    except InvalidField as error:
        raise InvalidField(f"{place}{error.field}", str(error)) from error


def unbase64(text: str, name: str) -> bytes:
    """Decode base64; raises InvalidInput, naming the field."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidField(name, f"{name} is not base64: {error}") from error
