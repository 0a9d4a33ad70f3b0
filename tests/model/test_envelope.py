from __future__ import annotations

import dataclasses
import datetime as dt
import math
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.errors import InvalidInput, PayloadNotSerializable, PayloadTooLarge, UnreadableEnvelope
from delayq.model import envelope as envelopes
from delayq.model.envelope import FORMAT, JSON, MAX_HEADERS_BYTES, RAW, Envelope, encode_envelope, open_body, parse

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
    [Odd(), {"a": Odd()}, [object], lambda: 0, "\ud800", {(1, 2): 3}],
    ids=["object", "object-within", "class", "function", "surrogate", "key-that-is-no-text"],
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
        ({"a": "x" * MAX_HEADERS_BYTES}, rf"the headers take \d+ bytes: at most {MAX_HEADERS_BYTES} are allowed"),
    ],
)
def test_headers_that_cannot_be_stored_are_refused(headers: Any, why: str):
    with pytest.raises(InvalidInput, match=why):
        encode_envelope(1, 3, headers=headers)


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
