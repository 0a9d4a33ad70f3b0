from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs
import markupsafe
import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.errors import InvalidInput, PayloadNotSerializable, PayloadTooLarge, UnreadableEnvelope
from delayq.model import envelope as envelopes
from delayq.model.envelope import (
    FORMAT,
    JSON,
    MAX_HEADERS_BYTES,
    RAW,
    Envelope,
    encode_envelope,
    open_body,
    parse,
    parse_many,
)

STAMP = b"1700000000000"


def stored(payload: Any, **options: Any) -> bytes:
    return STAMP + encode_envelope(payload, options.pop("max_retries", 3), **options)


@dataclasses.dataclass
class Order:
    number: int
    paid: bool = False


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_json_payload_is_unchanged(payload: Any):
    _, envelope = parse(stored(payload))
    assert envelope.kind == JSON
    assert open_body(envelope) == payload


@given(st.binary())
def test_bytes_payload_is_unchanged(payload: bytes):
    _, envelope = parse(stored(payload))
    assert (envelope.kind, envelope.body, open_body(envelope)) == (RAW, payload, payload)


@pytest.mark.parametrize("payload", [bytearray(b"ab"), memoryview(b"ab")])
def test_other_bytes_types_become_bytes(payload: Any):
    assert open_body(parse(stored(payload))[1]) == b"ab"


@pytest.mark.parametrize(
    ("payload", "received"),
    [
        (Order(5), {"number": 5, "paid": False}),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00Z"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
    ],
)
def test_values_that_json_converts_are_received_converted(payload: Any, received: Any):
    assert open_body(parse(stored(payload))[1]) == received


class Errors(collections.UserList[Any], list[Any]):  # type: ignore[misc]  # as Django's form.errors has
    pass


class ErrorsByField(collections.UserDict[str, Any], dict[str, Any]):  # type: ignore[misc]
    pass


class Lazy(list[int]):
    """Values that are made when they are read; it equals an empty list."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Colour(enum.Enum):
    RED = Text("red")


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Held:
    value: Any


class HeldByStruct(msgspec.Struct, frozen=True):
    value: Any


@attrs.frozen
class HeldByAttrs:
    value: Any


class Model(pydantic.BaseModel):
    number: int
    at: dt.datetime = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    rate: float = 0.5


MODEL = {"number": 5, "at": "2026-01-02T00:00:00Z", "rate": 0.5}
SUBCLASSES: list[tuple[Any, Any]] = [
    (Errors(["a"]), ["a"]),
    (ErrorsByField({"f": Errors(["a"])}), {"f": ["a"]}),
    (Lazy(), [1, 2]),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.defaultdict(list, a=[Lazy()]), {"a": [[1, 2]]}),
    (Pair(1, Text("b")), [1, "b"]),
    ({Text("a")}, ["a"]),
    (Text("a"), "a"),
    (markupsafe.Markup("<b>"), "<b>"),
    (Whole(5), 5),
    (np.float64(1.5), 1.5),
    ({Text("a"): 1, Whole(5): 2}, {"a": 1, "5": 2}),
    (Colour.RED, "red"),
    (Model(number=5), MODEL),
]


@pytest.mark.parametrize(("payload", "received"), SUBCLASSES, ids=map(str, range(len(SUBCLASSES))))
@pytest.mark.parametrize("around", [list, dict, Held, HeldByStruct, HeldByAttrs, None], ids=str)
def test_subclass_is_stored_as_its_iteration_gives_it(payload: Any, received: Any, around: Any):
    if around is list:
        payload, received = [payload], [received]
    elif around is dict:
        payload, received = {"a": payload}, {"a": received}
    elif around:
        payload, received = around(payload), {"value": received}
    assert open_body(parse(stored(payload))[1]) == received
    assert json.loads(envelopes.canonical_body(payload)[1]) == received


class LastValue(dict[str, list[int]]):
    """As Django's QueryDict and Werkzeug's MultiDict: it stores lists, and shows one value of each."""

    def items(self) -> Any:
        return [(key, values[-1]) for key, values in super().items()]


class Doubled(list[int]):
    def __iter__(self) -> Iterator[int]:
        return (2 * each for each in super().__iter__())


@pytest.mark.parametrize("payload", [LastValue(a=[1, 2]), Doubled([1])], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("around", [list, Held, None], ids=str)
def test_container_that_stores_something_else_than_it_shows_is_refused(payload: Any, around: Any):
    name = type(payload).__name__
    with pytest.raises(PayloadNotSerializable, match=f"a {name}, whose iteration gives other values than it stores"):
        encode_envelope([payload] if around is list else around(payload) if around else payload, 3)


TWICE = {1: "lost", "1": "kept"}


@pytest.mark.parametrize(
    "payload",
    [TWICE, [0, (TWICE,)], {"a": {"b": TWICE}}, Order(TWICE), {uuid.UUID(int=5): 1, str(uuid.UUID(int=5)): 2}],  # type: ignore[arg-type]
    ids=["itself", "in-lists", "in-dicts", "in-an-object", "other-types"],
)
def test_keys_with_the_same_text_are_refused(payload: Any):
    with pytest.raises(PayloadNotSerializable, match=r"two keys that become '.*' in JSON"):
        encode_envelope(payload, 3)


def test_envelope_keeps_every_attribute_of_a_message():
    headers = {"s": "é", "b": b"\xff", "i": 5, "f": 0.5, "t": True, "n": None}
    created, envelope = parse(stored({"a": 1}, max_retries=7, expires_ms=5000, headers=headers))
    assert created == 1_700_000_000_000
    assert envelope == Envelope(FORMAT, JSON, b'{"a":1}', 7, 5000, headers)


def test_envelope_without_a_timeout_has_the_old_format():
    assert encode_envelope(b"x", 3, 5000, {"a": 1}) == msgspec.msgpack.encode([FORMAT, RAW, b"x", 3, 5000, {"a": 1}])
    _, old = parse(stored(b"x"))
    assert (old.timeout, envelopes.encode(old)) == (None, encode_envelope(b"x", 3))


def test_timeout_is_the_last_field_and_survives_a_rewrite():
    made = encode_envelope(b"x", 3, timeout_ms=1500)
    assert msgspec.msgpack.decode(made) == [FORMAT, RAW, b"x", 3, None, None, 1500]
    _, envelope = parse(STAMP + made)
    assert (envelope.timeout, envelopes.encode(envelope)) == (1.5, made)


def test_older_delayq_without_timeouts_can_read_the_rest():
    class Older(msgspec.Struct, array_like=True):
        version: int
        kind: int
        body: bytes
        max_retries: int
        expires_ms: int | None = None
        headers: dict[str, Any] | None = None

    older = msgspec.msgpack.decode(encode_envelope(b"x", 3, headers={"a": 1}, timeout_ms=1500), type=Older)
    assert older == Older(FORMAT, RAW, b"x", 3, None, {"a": 1})


@pytest.mark.parametrize("timeout", [0, -1, 86_400_001, 1.5, "1"])
def test_invalid_timeout_makes_an_envelope_unreadable(timeout: Any):
    with pytest.raises(UnreadableEnvelope):
        parse(STAMP + msgspec.msgpack.encode([FORMAT, RAW, b"x", 3, None, None, timeout]))


def test_omitted_attributes_take_no_room():
    assert len(encode_envelope(b"", 3)) < 12


class Odd:
    pass


@pytest.mark.parametrize(
    "payload",
    [Odd(), {"a": Odd()}, [object], "\ud800", {(1, 2): 3}],
    ids=["object", "object-within", "class", "surrogate", "key-that-is-no-text"],
)
def test_payload_that_json_cannot_hold_is_refused_with_its_type(payload: Any):
    with pytest.raises(
        PayloadNotSerializable, match=f"a payload of type {type(payload).__name__} is not bytes and cannot be written"
    ):
        encode_envelope(payload, 3)


def test_payload_that_contains_itself_is_refused():
    payload: list[Any] = []
    payload.append(payload)
    with pytest.raises(PayloadNotSerializable):
        encode_envelope(payload, 3)


@pytest.mark.parametrize("payload", [b"x" * 100, "x" * 98])
def test_payload_may_be_as_large_as_the_limit_but_not_larger(payload: Any):
    assert encode_envelope(payload, 3, limit=100)
    with pytest.raises(PayloadTooLarge, match=r"takes 101 bytes: at most 100 are allowed \(max_payload\)"):
        encode_envelope(payload + payload[:1], 3, limit=100)


def test_payload_too_large_for_any_server_is_refused_despite_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(envelopes, "MOST_BYTES", 100)
    with pytest.raises(PayloadTooLarge, match="takes 101 bytes: Redis allows at most 100"):
        encode_envelope(b"x" * 101, 3, limit=1000)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({1: "a"}, "header name 1 is not a string"),
        ({"a": []}, "header 'a' is of type list: use a string, bytes, a number, a boolean or None"),
        ({"a": dt.timedelta(1)}, "header 'a' is of type timedelta: use"),
        (["a"], r"headers \['a'\] is not a mapping"),
        ("a", "headers 'a' is not a mapping"),
        ({"a": 2**64}, "the headers cannot be stored"),
        ({"a": "\ud800"}, "the headers cannot be stored"),
        ({"a": "x" * MAX_HEADERS_BYTES}, rf"the headers take [\d,]+ bytes: at most {MAX_HEADERS_BYTES:,} are allowed"),
    ],
)
def test_headers_that_cannot_be_stored_are_refused(headers: Any, why: str):
    with pytest.raises(InvalidInput, match=why):
        encode_envelope(1, 3, headers=headers)


def test_headers_of_subclasses_are_stored_as_plain_values():
    found = parse(stored(1, headers={Text("a"): markupsafe.Markup("b"), "n": Whole(5), "f": np.float64(1.5)}))[1]
    assert found.headers == {"a": "b", "n": 5, "f": 1.5}


@pytest.mark.parametrize("headers", [None, {}])
def test_empty_headers_are_stored_as_none(headers: Any):
    assert parse(stored(1, headers=headers))[1].headers is None


def test_changing_headers_after_the_send_has_no_effect():
    headers: dict[str, Any] = {"a": 1}
    envelope = stored(1, headers=headers)
    headers["a"] = 2
    assert parse(envelope)[1].headers == {"a": 1}


def packed(*fields: Any) -> bytes:
    return STAMP + msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    ("envelope", "why"),
    [
        (b"", "these 0 bytes are not an envelope"),
        (b"x" * 30, "these 30 bytes are not an envelope"),
        (STAMP, "not an envelope"),
        (STAMP + b"\xc1", "not an envelope"),
        (packed(1, RAW), "not an envelope"),
        (packed(1, RAW, "text", 3), "not an envelope"),
        (stored(1)[:-1], "not an envelope"),
        (stored(1) + b"x", "not an envelope"),
        (packed(FORMAT + 1, RAW, b"", 3), f"has version {FORMAT + 1}, but this delayq reads version {FORMAT}"),
        (packed(0, RAW, b"", 3), "the envelope has version 0"),
        (packed(-1, RAW, b"", 3), "the envelope has version -1"),
        (packed(FORMAT, 7, b"", 3), "the envelope has a payload of unknown kind 7: not 0 or 1"),
        (packed(FORMAT + 1, 7, b"", 3, None, None, None, "new"), f"the envelope has version {FORMAT + 1}"),
        (packed(FORMAT, 7, b"", 3), "the envelope has"),
    ],
)
def test_bytes_that_are_not_an_envelope_are_recognised(envelope: bytes, why: str):
    with pytest.raises(UnreadableEnvelope, match=why):
        parse(envelope)


@pytest.mark.parametrize(
    "unusual",
    [
        None,
        b"",
        b"0123456789012",
        b"not a stamp..",
        stored(b"x")[:-1],
        stored(b"x") + stored(b"y")[13:],
        packed(FORMAT + 1, RAW, b"x", 3),
        packed(FORMAT, 7, b"x", 3),
        packed(FORMAT, RAW, b"x", 3, None, {"a": [1]}),
        stored(b"x", headers={"a": "b"}),
        stored(b"x" * 20_000),
    ],
)
def test_many_envelopes_are_read_as_one_alone(unusual: bytes | None):
    def alone(each: bytes | None) -> tuple[int, Envelope] | None:
        try:
            return None if each is None else parse(each)
        except UnreadableEnvelope:
            return None

    usual: list[bytes | None] = [stored({"n": 1}), stored(b"raw", max_retries=7), stored("text", expires_ms=5)]
    for many in ([], usual, [*usual, unusual, *usual], [unusual]):
        assert parse_many(many) == list(map(alone, many))


def test_invalid_json_body_is_reported_when_it_is_opened():
    _, envelope = parse(packed(FORMAT, JSON, b'{"a":', 3))
    with pytest.raises(UnreadableEnvelope, match="the payload is not valid JSON"):
        open_body(envelope)


@given(st.binary(max_size=60))
def test_reader_fails_in_no_other_way_on_any_bytes(noise: bytes):
    for envelope in (noise, STAMP + noise):
        try:
            parse(envelope)
        except UnreadableEnvelope:
            continue


@dataclasses.dataclass(slots=True)
class Point:
    x: float | None
    y: float


class Measure(msgspec.Struct):
    values: tuple[float | None, ...]


@pytest.mark.parametrize(
    "payload",
    [
        math.nan,
        -math.inf,
        [None, {"a": math.nan}],
        Point(None, math.inf),
        Measure((None, math.nan)),
        {"a": {1.0, math.nan}},
        HeldByAttrs(math.nan),
        [np.float64("nan")],
        enum.Enum("Limit", {"NONE": math.inf}).NONE,  # type: ignore[attr-defined]
        Model(number=1, rate=math.nan),
    ],
)
def test_number_that_json_cannot_hold_is_refused(payload: Any):
    with pytest.raises(PayloadNotSerializable, match="NaN or infinity"):
        encode_envelope(payload, 3)


@pytest.mark.parametrize(
    "payload", [None, [None, 1.5], Point(None, 1.5), Measure((None, 1.5)), msgspec.Raw(b"[null]"), "null"]
)
def test_null_is_not_such_a_number(payload: Any):
    assert encode_envelope(payload, 3)
