"""What Redis stores of a message: 13 digits of server time at the send, then a MessagePack array.

The send script writes the digits: the time of creation is the server's, and an expiry counts from it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from delayq.errors import InvalidInput, PayloadNotSerializable, PayloadTooLarge, UnreadableEnvelope
from delayq.model.units import MAX_LEASE_MS

FORMAT = 1
"""The version of the stored data, keys and envelopes. A newer one is refused."""

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_HEADERS_BYTES = 64 * 1024
MOST_BYTES = 511 * 1024 * 1024  # of a payload: a server closes the connection on which an argument exceeds 512 MiB

RAW, JSON = _KINDS = 0, 1
STAMP = 13  # digits of the time of the send, which stand before an envelope
_LARGE = 16 * 1024  # bytes

Headers = Mapping[str, str | bytes | int | float | bool | None]
_HEADER_TYPES = (str, bytes, int, float, bool, type(None))


class CheckedJson(bytes):
    """A payload that is already JSON, with no value lost."""


# What is decoded cannot lead back to itself: the garbage collector need not look at the thousands that are under way.
class Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message as it is stored.

    Attributes:
        version: of the format.
        kind: RAW when the body is the bytes that were sent, JSON when it is their encoding.
        body: the payload.
        max_retries: deliveries after the first one.
        expires_ms: milliseconds from the send after which no delivery is started, or None.
        headers: what the sender added, or None.
        timeout_ms: that a run of the handler may take, or None. It is stored only where it is given, as the last
            field: a delayq that does not know it ignores it, and runs the handler with its consumer's timeout.
    """

    version: int
    kind: int
    body: bytes
    max_retries: int
    expires_ms: int | None = None
    headers: dict[str, Any] | None = None
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASE_MS)] | None = None

    @property
    def timeout(self) -> float | None:
        """The seconds that a run of the handler may take, or None."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000


_encode = msgspec.msgpack.Encoder().encode
_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
_encode_json = msgspec.json.Encoder().encode
_encode_sorted_json = msgspec.json.Encoder(order="sorted").encode
_decode_json = msgspec.json.Decoder().decode


def encode_envelope(
    payload: Any,
    max_retries: int,
    expires_ms: int | None = None,
    headers: Headers | None = None,
    limit: int = MAX_PAYLOAD_BYTES,
    timeout_ms: int | None = None,
) -> bytes:
    """Return the envelope of a payload, without its stamp.

    Args:
        payload: bytes are stored as they are; anything else as JSON. What JSON lacks takes its nearest form: a tuple
            or a set is a list, bytes within are base64 text, names of fields are strings, datetimes, UUIDs and
            Decimals are text, dataclasses and msgspec Structs are objects. NaN and infinity are refused, and so
            are two keys of one dict that are the same text in JSON, such as 1 and "1".
        limit: the most bytes that the payload may take.
        timeout_ms: 1 to a day, or None.

    Raises:
        PayloadTooLarge, PayloadNotSerializable, InvalidInput
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        kind, body = JSON if isinstance(payload, CheckedJson) else RAW, bytes(payload)
    else:
        kind, body = JSON, _json(payload)
    if len(body) > MOST_BYTES:
        raise PayloadTooLarge(f"the payload takes {len(body)} bytes: a Redis server takes at most {MOST_BYTES}")
    if len(body) > limit:
        raise PayloadTooLarge(f"the payload takes {len(body)} bytes: at most {limit} are allowed (max_payload)")
    fields = FORMAT, kind, body, max_retries, expires_ms, _checked(headers)
    return _encode(fields if timeout_ms is None else (*fields, timeout_ms))


def canonical_body(payload: Any) -> tuple[int, bytes]:
    """Return a payload's kind and its body with keys and sets sorted: the same for payloads that differ in order alone.

    Raises:
        PayloadNotSerializable
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        return RAW, bytes(payload)
    _json(payload)  # refuses what a send refuses
    try:
        plain = msgspec.to_builtins(payload, str_keys=True, order="sorted")
    except TypeError as error:
        raise PayloadNotSerializable(f"a set of the payload cannot be sorted: {error}; give a list instead") from error
    return JSON, _encode_sorted_json(plain)


def encode(envelope: Envelope) -> bytes:
    """Return an envelope that was opened as `encode_envelope` made it, without its stamp."""
    fields = msgspec.structs.astuple(envelope)
    return _encode(fields[:-1] if envelope.timeout_ms is None else fields)


def parse(stored: bytes) -> tuple[int, Envelope]:
    """Return the time of the send, ms since 1970, and the envelope.

    Raises:
        UnreadableEnvelope: the bytes are no envelope, or one of a newer version.
    """
    try:
        created_ms = int(stored[:STAMP])
        # To copy a few bytes costs less than to look at them through a memoryview.
        envelope = _decode_envelope(stored[STAMP:] if len(stored) < _LARGE else memoryview(stored)[STAMP:])
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableEnvelope(f"these {len(stored)} bytes are no envelope: {error}") from error
    if envelope.version != FORMAT:
        raise UnreadableEnvelope(f"the envelope has version {envelope.version}: this delayq reads version {FORMAT}")
    if envelope.kind not in _KINDS:
        raise UnreadableEnvelope(f"the envelope has a payload of kind {envelope.kind}: there are {RAW} and {JSON}")
    if envelope.headers and not all(isinstance(value, _HEADER_TYPES) for value in envelope.headers.values()):
        raise UnreadableEnvelope("the envelope has a header that is neither text, bytes, a number, a boolean nor None")
    return created_ms, envelope


def parse_unstamped(stored: bytes) -> Envelope:
    """Return an envelope as `encode_envelope` made it; raises UnreadableEnvelope as `parse` does."""
    try:
        envelope = _decode_envelope(stored)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        envelope = None
    if envelope is None or envelope.headers or envelope.version != FORMAT or envelope.kind not in _KINDS:
        return parse(b"0" * STAMP + stored)[1]  # looks closer, and says what is wrong
    return envelope


def open_body(envelope: Envelope) -> Any:
    """Return the payload as it was sent: bytes, or what the JSON holds; raises UnreadableEnvelope."""
    if envelope.kind == RAW:
        return envelope.body
    try:
        return _decode_json(envelope.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableEnvelope(f"the payload is not the JSON that it says it is: {error}") from error


def _json(payload: Any) -> bytes:
    try:
        body = _encode_json(payload)
        if _decode_json(body) != payload:  # to read it back costs a tenth of what a look at each value in Python does
            _check_kept(payload)
    except PayloadNotSerializable:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise PayloadNotSerializable(
            f"a payload of type {type(payload).__name__} is neither bytes nor JSON: {error}"
        ) from error
    return body


def _check_kept(value: Any) -> None:
    """Raise PayloadNotSerializable for what msgspec would write, and a value of it be lost."""
    if isinstance(value, float) and not math.isfinite(value):  # it writes null
        raise PayloadNotSerializable("the payload holds NaN or an infinity, which JSON lacks: send None, or a string")
    if isinstance(value, dict):
        texts: set[str] = set()
        for key in value:
            (text,) = _decode_json(_encode_json({key: None}))
            if text in texts:
                raise PayloadNotSerializable(f"the payload has two keys that are both {text!r} in JSON: rename one")
            texts.add(text)
    for each in _held(value):
        _check_kept(each)


def _held(value: Any) -> Iterable[Any]:
    """Return what a value of a payload holds, one level deep."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value).values()
    if dataclasses.is_dataclass(value):
        return [getattr(value, each.name) for each in dataclasses.fields(value)]
    return ()


def _checked(headers: Headers | None) -> dict[str, Any] | None:
    if not headers:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidInput(f"headers {headers!r} are not a mapping: give a dict of names and values")
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidInput(f"header name {name!r} is not a string")
        if not isinstance(value, _HEADER_TYPES):
            raise InvalidInput(f"header {name!r} is a {type(value).__name__}: strings, bytes and numbers are allowed")
    checked = dict(headers)
    try:
        size = len(encode(Envelope(FORMAT, RAW, b"", 0, None, checked)))
    except (OverflowError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"the headers cannot be stored: {error}") from error
    if size > MAX_HEADERS_BYTES:
        raise InvalidInput(f"the headers take {size} bytes: at most {MAX_HEADERS_BYTES} are allowed")
    return checked
