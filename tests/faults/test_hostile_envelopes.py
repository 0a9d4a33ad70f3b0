"""Any stored bytes are an envelope that can be delivered and shown, or an UnreadableEnvelope."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from delayq.cli.output import payload_text, record
from hypothesis import given
from hypothesis import strategies as st

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import encode_envelope, open_body, parse
from delayq.operations.inspect import describe
from delayq.operations.queue_context import QueueContext, Settings
from delayq.protocol.replies import StoredMessage
from tests.harness.hostile import GROWTH_BYTES, JSON, examples, growth, mutated, mutations, refusal

STAMP = b"1700000000000"
CORE = QueueContext("emails", "delayq", 1, Settings())

header_values = st.text() | st.binary() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.booleans() | st.none()
encoded = st.builds(
    lambda payload, retries, expires, headers: STAMP + encode_envelope(payload, retries, expires, headers),
    st.binary(max_size=200) | JSON,
    st.integers(0, 2**40),
    st.none() | st.integers(0, 2**60),
    st.none() | st.dictionaries(st.text(max_size=20), header_values, max_size=4),
)
"""Envelopes as delayq writes them."""

packed = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
).map(msgspec.msgpack.encode)
"""MessagePack of another shape."""

HEADERS = STAMP + b"\x96\x01\x00\xc4\x00\x03\xc0"  # an envelope up to its headers
BODY = STAMP + b"\x94\x01\x01"  # an envelope up to its JSON body

CORPUS = {
    "empty": b"",
    "stamp-alone": STAMP,
    "array-of-four-billion": STAMP + b"\xdd\xff\xff\xff\xff",
    "map-of-four-billion": HEADERS + b"\xdf\xff\xff\xff\xff",
    "body-of-four-gigabytes": STAMP + b"\x94\x01\x00\xc6\xff\xff\xff\xff",
    "a-million-arrays-deep": HEADERS + b"\x81\xa1a" + b"\x91" * 1_000_000,
    "a-million-maps-deep": HEADERS + b"\x81\xa1a" * 1_000_000,
    "header-that-is-an-extension": HEADERS + b"\x81\xa1a\xd4\x05x",
    "header-that-is-a-time": HEADERS + b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",
    "header-that-is-a-time-out-of-range": HEADERS + b"\x81\xa1a\xc7\x0c\xff" + b"\xff" * 12,
    "header-that-is-a-list": HEADERS + b"\x81\xa1a\x91\xc0",
    "header-whose-name-is-a-number": HEADERS + b"\x81\x01\xc0",
    "header-whose-name-is-no-text": HEADERS + b"\x81\xa1\xff\xc0",
    "header-that-is-no-text": HEADERS + b"\x81\xa1a\xa1\xff",
    "version-of-twenty-digits": STAMP + msgspec.msgpack.encode((2**63, 0, b"", 3)),
    "json-a-million-deep": BODY + msgspec.msgpack.encode(b"[" * 1_000_000) + b"\x03",
    "json-with-a-million-digits": BODY + msgspec.msgpack.encode(b"9" * 1_000_000) + b"\x03",
    "json-beyond-a-float": BODY + msgspec.msgpack.encode(b"1e999999999") + b"\x03",
    "json-with-half-a-surrogate": BODY + msgspec.msgpack.encode(b'"\\ud800"') + b"\x03",
    "json-that-is-no-text": BODY + msgspec.msgpack.encode(b'"\xff"') + b"\x03",
    "json-that-is-empty": BODY + msgspec.msgpack.encode(b"") + b"\x03",
    "stamp-of-other-digits": "٣".encode() * 6 + b"1" + encode_envelope(b"", 3),
    "gigabyte-in-a-string": HEADERS + b"\x81\xa1a\xdb\x3f\xff\xff\xff",
}
ODD = {
    "expiry-past-the-calendar": STAMP + msgspec.msgpack.encode((1, 0, b"", 3, 2**64 - 1)),
    "expiry-before-the-calendar": STAMP + msgspec.msgpack.encode((1, 0, b"", 3, -(2**63))),
    "retries-below-none": STAMP + msgspec.msgpack.encode((1, 0, b"", -(2**63))),
    "time-before-1970": b"-999999999999" + encode_envelope(b"", 3),
    "time-with-underscores": b"1_7_0_0_0_0_0" + encode_envelope(b"", 3),
    "not-a-number-in-a-header": HEADERS + b"\x81\xa1a\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "escapes-everywhere": STAMP + encode_envelope({"\x1b[2J": "\x9b"}, 3, None, {"\x1b]0;x\x07": "\x1b[2J"}),
}


def look(stored: bytes) -> None:
    """Do what consumers, `get` and the command line do with a stored message."""
    info = describe(CORE, "order-42", StoredMessage({"pending": 1.7e12}, None, None, None, False, stored))
    assert info is not None
    payload_text(info)
    assert msgspec.json.decode(msgspec.json.encode(record(info)))["id"] == "order-42"
    _, envelope = parse(stored)
    open_body(envelope)


def look_or_refuse(stored: bytes) -> None:
    assert len(refusal(lambda: look(stored), UnreadableEnvelope)) < 1000


@pytest.mark.parametrize("name", CORPUS)
def test_invalid_envelope_is_refused_by_name_and_at_once(name: str) -> None:
    with pytest.raises(UnreadableEnvelope):
        look(CORPUS[name])


@pytest.mark.parametrize("name", ODD)
def test_odd_envelope_can_be_delivered_and_shown(name: str) -> None:
    look(ODD[name])


@examples
@given(st.binary(max_size=300), st.sampled_from((b"", STAMP, HEADERS, BODY)))
def test_any_bytes_are_an_envelope_or_unreadable(noise: bytes, before: bytes) -> None:
    look_or_refuse(before + noise)


@pytest.mark.full
@examples
@given(mutations(encoded))
def test_damaged_envelope_is_valid_or_unreadable(stored: bytes) -> None:
    look_or_refuse(stored)


@pytest.mark.full
@examples
@given(packed)
def test_other_messagepack_is_an_envelope_or_unreadable(data: bytes) -> None:
    look_or_refuse(STAMP + data)


@examples
@given(encoded)
def test_envelope_of_delayq_is_never_unreadable(stored: bytes) -> None:
    look(stored)


@pytest.mark.full
def test_envelope_reader_does_not_leak_memory() -> None:
    dice = random.Random(4)
    headers: dict[str, Any] = {"a": "b" * 50, "c": b"\xff" * 50, "d": 1.5}
    seeds = [
        STAMP + encode_envelope(payload, 3, 5, headers) for payload in (b"x" * 200, {"k": ["v" * 20] * 5}, "é" * 40)
    ]

    def work(number: int) -> None:
        look_or_refuse(seeds[number % 3])
        look_or_refuse(mutated(seeds[number % 3], dice))

    assert growth(work, 6000) < GROWTH_BYTES
