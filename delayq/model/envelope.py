"""A message as Redis stores it: the server time of the send in 13 digits, then a MessagePack array.

The send script writes the digits, so the time of creation, from which an expiry counts, is by the server's clock.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import marshal
import math
import operator
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from delayq.errors import InvalidInput, PayloadNotSerializable, PayloadTooLarge, UnreadableEnvelope
from delayq.model.units import MAX_LEASE_MS

FORMAT = 1
"""The version of envelopes. A newer one is refused."""

QUEUE_FORMAT = 2
"""The newest version of a queue's data that is read. ``lua/prelude.lua`` says what the data may need besides."""

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_HEADERS_BYTES = 64 * 1024
MAX_DEPTH = 500
"""Levels of nested lists and objects in a payload, half of what fits into Python's default recursion limit."""

MOST_LEVELS = 2 * MAX_DEPTH  # of a payload as it is given: what an Enum or a model holds counts as one more
MOST_BYTES = 511 * 1024 * 1024  # of a payload: a server closes the connection on which an argument exceeds 512 MiB

RAW, JSON = _KINDS = 0, 1
_USUAL = {(FORMAT, RAW), (FORMAT, JSON)}
STAMP = 13  # digits of the time of the send, in front of an envelope
_LARGE = 16 * 1024  # bytes

Headers = Mapping[str, str | bytes | int | float | bool | None]
RESERVED = "delayq-"  # names of headers that begin with it, in any case, are delayq's own
TASK = "delayq-task"  # the header that names the task which a message is for
RESULTS = "delayq-results"  # the header of a message whose result is kept; the last one, as scripts look for it there
GROUP = "delayq-group"  # the header that names the group which a message waits for
_HEADER_TYPES = (str, bytes, int, float, bool, type(None))
_DECODED_TYPES = frozenset(_HEADER_TYPES)
_EXACT: dict[type[Any], Callable[[Any], Any]] = {
    bool: bool,
    str: str.__str__,
    bytes: bytes.__bytes__,
    int: int.__int__,
    float: float.__float__,
}
"""For the types that have subclasses which msgspec refuses: what makes a plain value."""
_SIMPLE = frozenset({str, bytes, int, bool, type(None)})  # plain already, whatever the value

_Level: TypeAlias = Generator[Any, Any, Any]


class CheckedJson(bytes):
    """A payload that is already JSON, and known to have lost no value."""


# Decoded values cannot refer back to the envelope, so the garbage collector need not track thousands of them.
class Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message as it is stored.

    Attributes:
        version: of the format.
        kind: RAW if the body is the bytes that were sent, JSON if it is a value encoded as JSON.
        body: the payload.
        max_retries: deliveries after the first one.
        expires_ms: milliseconds from the send after which no delivery is started, or None.
        headers: what the sender added, and delayq's own headers; or None.
        timeout_ms: how long a run of the handler may take, or None. It is the last field and stored only if given. A
            delayq that does not know it ignores it and uses the consumer's timeout.
    """

    version: int
    kind: int
    body: bytes
    max_retries: int
    expires_ms: int | None = None
    headers: dict[str, Any] | None = None
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASE_MS)] | None = None

    @property
    def sent_headers(self) -> dict[str, Any]:
        """The headers that the sender added."""
        headers = self.headers
        if not headers:
            return {}
        own = _reserved(headers)
        return {name: value for name, value in headers.items() if name not in own} if own else headers

    @property
    def own_headers(self) -> dict[str, Any]:
        """The headers that only delayq adds."""
        headers = self.headers or {}
        return {name: headers[name] for name in _reserved(headers)}

    @property
    def timeout(self) -> float | None:
        """The seconds that a run of the handler may take, or None."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000


_encode = msgspec.msgpack.Encoder().encode
_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
_encode_json = msgspec.json.Encoder().encode
_encode_sorted_json = msgspec.json.Encoder(order="sorted").encode
_decode_json = msgspec.json.Decoder().decode

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STEPS = bytes(byte for byte in range(256) if byte not in b"[{]}")


def encode_envelope(
    payload: Any,
    max_retries: int,
    expires_ms: int | None = None,
    headers: Headers | None = None,
    limit: int = MAX_PAYLOAD_BYTES,
    timeout_ms: int | None = None,
    own: Headers | None = None,
) -> bytes:
    """Return the envelope of a payload, without its stamp.

    Args:
        payload: bytes are stored unchanged, anything else as JSON, as `Outgoing` describes. NaN and infinity are
            refused, and so are two keys of one dict that are the same text in JSON, such as 1 and "1", and more than
            MAX_DEPTH levels.
        limit: the most bytes that the payload may take.
        headers: what a sender gave; they are checked.
        timeout_ms: 1 to a day, or None.
        own: delayq's own headers; nothing that comes from a sender.

    Raises:
        PayloadTooLarge, PayloadNotSerializable, InvalidInput
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        kind, body = JSON if isinstance(payload, CheckedJson) else RAW, bytes(payload)
        if kind == JSON and nests_too_deep(body):
            raise _too_deep()
    else:
        kind, body = JSON, _json(payload)[0]
    if len(body) > MOST_BYTES:
        raise PayloadTooLarge(f"the payload takes {len(body):,} bytes: Redis allows at most {MOST_BYTES:,}")
    if len(body) > limit:
        raise PayloadTooLarge(f"the payload takes {len(body):,} bytes: at most {limit:,} are allowed (max_payload)")
    checked = _checked(headers) if headers else None
    fields = FORMAT, kind, body, max_retries, expires_ms, {**(checked or {}), **own} if own else checked
    return _encode(fields if timeout_ms is None else (*fields, timeout_ms))


def encode_json(payload: Any) -> bytes:
    """Return a payload as JSON, as `encode_envelope` stores it; raises PayloadNotSerializable."""
    return _json(payload)[0]


def check_header_names(names: Collection[str]) -> None:
    """Raise InvalidInput unless a sender may give headers these names."""
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(f"header name {name!r} is not a string")
    for name in _reserved(names):
        raise InvalidInput(
            f"header {name!r} is reserved: names that begin with {RESERVED!r} are delayq's own; rename it or leave it "
            "out"
        )


def canonical_body(payload: Any) -> tuple[int, bytes]:
    """Return a payload's kind, and its body with keys and sets sorted, so that their order makes no difference.

    Raises:
        PayloadNotSerializable
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        return RAW, bytes(payload)
    _, payload = _json(payload)  # refuses what a send refuses
    try:
        plain = msgspec.to_builtins(payload, str_keys=True, order="sorted")
    except TypeError as error:
        raise PayloadNotSerializable(f"a set in the payload cannot be sorted: {error}; use a list instead") from error
    return JSON, _encode_sorted_json(plain)


def encode(envelope: Envelope) -> bytes:
    """Encode an opened envelope again, without its stamp."""
    fields = msgspec.structs.astuple(envelope)
    return _encode(fields[:-1] if envelope.timeout_ms is None else fields)


def parse(stored: bytes) -> tuple[int, Envelope]:
    """Return the time of the send, ms since 1970, and the envelope.

    Raises:
        UnreadableEnvelope: the bytes are not an envelope, or have a newer version.
    """
    try:
        created_ms = int(stored[:STAMP])
        # Copying a few bytes costs less than a memoryview.
        envelope = _decode_envelope(stored[STAMP:] if len(stored) < _LARGE else memoryview(stored)[STAMP:])
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableEnvelope(f"these {len(stored)} bytes are not an envelope: {error}") from error
    if envelope.version != FORMAT:
        raise UnreadableEnvelope(f"the envelope has version {envelope.version}, but this delayq reads version {FORMAT}")
    if envelope.kind not in _KINDS:
        raise UnreadableEnvelope(f"the envelope has a payload of unknown kind {envelope.kind}: not {RAW} or {JSON}")
    if envelope.headers and not _DECODED_TYPES.issuperset(map(type, envelope.headers.values())):
        raise UnreadableEnvelope("the envelope has a header that is not text, bytes, a number, a boolean or None")
    return created_ms, envelope


def parse_many(stored: Sequence[bytes | None]) -> list[tuple[int, Envelope] | None]:
    """Return what `parse` does for each of some messages; None for one that is gone or unreadable.

    Usual messages are checked together, in half the time.
    """
    try:
        if max(map(len, stored), default=0) >= _LARGE:  # type: ignore[arg-type]  # TypeError if one is gone
            return list(map(_parse_or_none, stored))
        times = list(map(int, [each[:STAMP] for each in stored]))  # type: ignore[index]
        found = list(map(_decode_envelope, [each[STAMP:] for each in stored]))  # type: ignore[index]
        kinds = {(each.version, each.kind) for each in found}
        types = {type(value) for each in found if each.headers for value in each.headers.values()}
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return list(map(_parse_or_none, stored))
    if kinds <= _USUAL and types <= _DECODED_TYPES:
        return list(zip(times, found, strict=True))
    return list(map(_parse_or_none, stored))


def _parse_or_none(stored: bytes | None) -> tuple[int, Envelope] | None:
    try:
        return None if stored is None else parse(stored)
    except UnreadableEnvelope:
        return None


def parse_unstamped(stored: bytes) -> Envelope:
    """Return an envelope as `encode_envelope` made it; raises UnreadableEnvelope as `parse` does."""
    try:
        envelope = _decode_envelope(stored)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        envelope = None
    if envelope is None or envelope.headers or envelope.version != FORMAT or envelope.kind not in _KINDS:
        return parse(b"0" * STAMP + stored)[1]  # raises with what exactly is wrong
    return envelope


def open_body(envelope: Envelope) -> Any:
    """Return the payload as it was sent: bytes or the decoded JSON; raises UnreadableEnvelope."""
    return envelope.body if envelope.kind == RAW else decode_json(envelope.body)


def decode_json(body: bytes, decode: Callable[[bytes], Any] = _decode_json, typed: bool = False) -> Any:
    """Return the value that a JSON text holds, as `decode` reads it; raises UnreadableEnvelope.

    Args:
        typed: let msgspec.ValidationError pass, for a value of another type.
    """
    if nests_too_deep(body):
        raise UnreadableEnvelope(f"the payload nests lists and objects more than {MAX_DEPTH} levels deep")
    try:
        return decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if typed and isinstance(error, msgspec.ValidationError):
            raise
        raise UnreadableEnvelope(f"the payload is not valid JSON: {error}") from error


def nests_too_deep(body: bytes) -> bool:
    """Whether a JSON text nests more than MAX_DEPTH levels.

    Decoding it to find out would take some of the thread's stack for each level. Python 3.13 allows more levels than
    a thread with a stack of 1 MiB crashes.
    """
    if len(body) <= 2 * MAX_DEPTH:
        return False
    most = MAX_DEPTH + 1  # `count` would look at each byte, and `replace` jumps from one to the next
    if len(body) - len(body.replace(b"[", b"", most).replace(b"{", b"", most)) <= MAX_DEPTH:  # nearly all
        return False
    if b'\\"' in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(body.split(b'"')[::2])
    steps = memoryview(outside.translate(_STEPS, _NO_STEPS)).cast("b")
    return max(accumulate(steps), default=0) > MAX_DEPTH


def _too_deep() -> PayloadNotSerializable:
    return PayloadNotSerializable(
        f"the payload nests lists and objects more than {MAX_DEPTH} levels deep: send it as bytes, or flatten it"
    )


def _json(payload: Any) -> tuple[bytes, Any]:
    """Return a payload's JSON, and the payload from which msgspec makes it."""
    try:
        if type(payload) is str:  # JSON holds each text that is valid
            return _encode_json(payload), payload
        if not _is_builtin(payload):
            payload = _plain(payload)
        try:
            body = _encode_json(payload)
        except TypeError:  # marshal takes NumPy's numbers for bytes
            payload = _plain(payload)
            body = _encode_json(payload)
        if nests_too_deep(body):
            raise _too_deep()
        if _decode_json(body) != payload:  # a tenth of the cost of checking each value in Python
            _plain(payload)
    except PayloadNotSerializable:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        if inspect.isroutine(payload):
            raise PayloadNotSerializable(
                f"a payload must be data, and {payload.__qualname__} is a function: register it with @queue.task, and "
                f"call {payload.__name__}.send with its arguments"
            ) from error
        if callable(payload) and hasattr(payload, "send"):
            raise PayloadNotSerializable(
                f"a payload must be data, and this is a {type(payload).__name__}: call its send with its arguments"
            ) from error
        raise PayloadNotSerializable(
            f"a payload of type {type(payload).__name__} is not bytes and cannot be written as JSON: {error}"
        ) from error
    return body, payload


def _is_builtin(payload: Any) -> bool:
    """Whether all values are of Python's own types. marshal refuses others, and finds them faster than Python can."""
    try:
        marshal.dumps(payload, 2)
    except ValueError:
        return False
    return True


def _plain(value: Any) -> Any:
    """Return a value that msgspec writes without losing anything: the same one, unless it holds one to replace.

    Text and numbers of a subclass become plain ones, as `json` takes them. A container of a subclass becomes what its
    iteration gives, because msgspec looks past that at what it stores. A Pydantic model becomes its JSON form.

    Raises:
        PayloadNotSerializable: there is no such value.
    """
    levels, plain = [_level(value)], None  # not by recursion, as the thread's stack may have little room
    while levels:
        try:
            inner = levels[-1].send(plain)
        except StopIteration as done:
            levels.pop()
            plain = done.value
        else:
            if len(levels) > MOST_LEVELS:
                raise _too_deep()
            levels.append(_level(inner))
            plain = None
    return plain


def _level(value: Any) -> _Level:
    """Yield the values inside a value, take what `_plain` makes of each, and return what it makes of the whole."""
    if isinstance(value, enum.Enum):
        plain = yield value.value
        return value if plain is value.value else plain
    if isinstance(value, float) and not math.isfinite(value):  # msgspec writes null
        raise PayloadNotSerializable(
            "the payload contains NaN or infinity, which JSON cannot hold: send None or a string"
        )
    if isinstance(value, dict):
        return (yield from _plain_dict(value))
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return (yield from _plain_values(value, kind))
    names = _field_names(type(value))
    if names:
        return (yield from _plain_object(value, names))
    if callable(getattr(type(value), "model_dump", None)):
        return (yield value.model_dump(mode="json"))
    return exact(value)


def _plain_dict(value: dict[Any, Any]) -> _Level:
    stored, given = dict(dict.items(value)), dict(value.items())
    plain = {}
    texts: set[str] = set()
    for key, each in given.items():
        plain_key = exact(key)
        (text,) = _decode_json(_encode_json({plain_key: None}))
        if text in texts:
            raise PayloadNotSerializable(f"the payload has two keys that become {text!r} in JSON: rename one")
        texts.add(text)
        plain[plain_key] = each if type(each) in _SIMPLE else (yield each)
    if _are_same([*plain, *plain.values()], [*stored, *stored.values()]):
        return value
    if stored and given != stored:
        raise _two_faced(value, "dict(….items())")
    return plain


def _plain_values(value: Any, kind: type[Any]) -> _Level:
    stored, given = list(kind.__iter__(value)), list(value)
    plain = []
    for each in given:  # a comprehension cannot yield
        plain.append(each if type(each) in _SIMPLE else (yield each))  # noqa: PERF401
    if _are_same(plain, stored):
        return value
    if stored and given != stored:
        raise _two_faced(value, f"{kind.__name__}(…)")
    return kind(plain)


def _plain_object(value: Any, names: Iterable[str]) -> _Level:
    given = {name: getattr(value, name) for name in names if hasattr(value, name)}
    changed = {}
    for name, each in given.items():
        plain = yield each
        if plain is not each:
            changed[name] = plain
    if changed:
        value = copy.copy(value)
        for name, plain in changed.items():
            (force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__)(value, name, plain)
    return value


def _field_names(kind: type[Any]) -> list[str]:
    """Return the fields of a Struct, a dataclass or a class made by attrs."""
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    return [each.name for each in getattr(kind, "__attrs_attrs__", ())]


def exact(value: Any) -> Any:
    """Return text, bytes or a number of a subclass as a plain one, and anything else unchanged."""
    for kind, converted in _EXACT.items():
        if isinstance(value, kind):
            return value if type(value) is kind else converted(value)
    return value


def _are_same(values: list[Any], others: list[Any]) -> bool:
    return len(values) == len(others) and all(map(operator.is_, values, others))


def _two_faced(value: Any, remedy: str) -> PayloadNotSerializable:
    return PayloadNotSerializable(
        f"the payload contains a {type(value).__name__}, whose iteration gives other values than it stores: send "
        f"{remedy}, or a plain value of what you mean"
    )


def group_of(headers: Mapping[str, Any] | None) -> str | None:
    """Return the group that a message waits, or waited, for; None if there is none."""
    name = headers.get(GROUP) if headers else None
    return name if isinstance(name, str) else None


def _reserved(names: Collection[str]) -> list[str]:
    """Return the names that are delayq's own."""
    if RESERVED not in "".join(names).lower():  # takes a fifth of the time
        return []
    return [name for name in names if name.strip().lower().startswith(RESERVED)]


def _checked(headers: Headers) -> dict[str, Any]:
    if not isinstance(headers, Mapping):
        raise InvalidInput(f"headers {headers!r} is not a mapping: give a dict of names and values")
    check_header_names(headers)
    for name, value in headers.items():
        if not isinstance(value, _HEADER_TYPES):
            raise InvalidInput(
                f"header {name!r} is of type {type(value).__name__}: use a string, bytes, a number, a boolean or None"
            )
    checked = {exact(name): exact(value) for name, value in headers.items()}
    try:
        size = len(encode(Envelope(FORMAT, RAW, b"", 0, None, checked)))
    except (OverflowError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"the headers cannot be stored: {error}") from error
    if size > MAX_HEADERS_BYTES:
        raise InvalidInput(f"the headers take {size:,} bytes: at most {MAX_HEADERS_BYTES:,} are allowed")
    return checked
