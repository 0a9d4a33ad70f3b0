"""Any JSON Lines file holds messages that can be sent, or raises an InvalidInput that names the line."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from delayq.cli.json_lines import MAX_LINE_BYTES, parse_line, read_lines
from hypothesis import given
from hypothesis import strategies as st

from delayq.errors import InvalidInput
from delayq.model.envelope import open_body, parse
from delayq.operations.encode import encode_all
from delayq.operations.queue_context import QueueContext, Settings
from tests.harness.hostile import GROWTH_BYTES, JSON, examples, growth, mutated, mutations, refusal, texts

CORE = QueueContext("emails", "delayq", 1, Settings())
MILLION = 1_100_000

odd_numbers = st.integers() | st.floats() | st.sampled_from([1e308, 10**400, -0.0, 2**63, 2**64])
fields = st.fixed_dictionaries(
    {},
    optional={
        "payload": JSON,
        "delay": odd_numbers | texts,
        "at": texts | st.datetimes(timezones=st.timezones() | st.none()).map(str),
        "id": texts,
        "on_conflict": st.sampled_from(["ignore", "replace", "error", "", "Ignore"]),
        "expires_in": odd_numbers | texts,
        "max_retries": odd_numbers,
        "headers": st.dictionaries(texts, odd_numbers | texts | st.none(), max_size=3) | texts,
        "Payload": st.none(),
    },
)
lines = fields.map(lambda given: json.dumps(given).encode())

CORPUS = {
    "no-json": b"hello",
    "nul": b"\0",
    "list": b"[1]",
    "string": b'"payload"',
    "no-payload": b"{}",
    "cut": b'{"payload": 1',
    "two-on-a-line": b'{"payload": 1} {"payload": 2}',
    "carriage-returns-between": b'{"payload": 1}\r{"payload": 2}',
    "utf-16": '{"payload": 1}'.encode("utf-16"),
    "no-text": b'{"payload": "\xff"}',
    "name-that-is-no-text": b'{"\xff": 1, "payload": 1}',
    "half-a-surrogate": b'{"payload": "\\ud800"}',
    "half-a-surrogate-in-an-id": b'{"payload": 1, "id": "\\ud800"}',
    "number-without-end": b'{"payload": 1, "delay": Infinity}',
    "number-beyond-a-float": b'{"payload": 1, "delay": 1e999}',
    "a-million-digits": b'{"payload": 1, "delay": "' + b"9" * MILLION + b's"}',
    "a-million-digits-of-a-number": b'{"payload": 1, "delay": ' + b"9" * MILLION + b"}",
    "a-million-digits-of-payload": b'{"payload": ' + b"9" * MILLION + b"}",
    "a-million-arrays-deep": b'{"payload": ' + b"[" * MILLION,
    "a-million-objects-deep": b'{"payload": ' + b'{"a":' * MILLION,
    "a-million-objects-deep-in-a-header": b'{"payload": 1, "headers": ' + b'{"a":' * MILLION,
    "an-unknown-name-of-a-megabyte": b'{"' + b"x" * MILLION + b'": 1}',
    "an-id-of-a-megabyte": b'{"payload": 1, "id": "' + b"x" * MILLION + b'"}',
    "many-headers": b'{"payload": 1, "headers": {' + b",".join(b'"%d": 1' % i for i in range(50_000)) + b"}}",
    "a-payload-of-escapes": b'{"payload": "' + b"\\u0000" * MILLION + b'"}',
    "a-line-without-end": b" " * (MAX_LINE_BYTES + 1),
}


def send(data: bytes) -> list[Any]:
    """Do what ``delayq send --file`` does up to the server; return the payloads."""
    payloads = []
    for line in read_lines(io.BytesIO(data), "emails.jsonl"):
        message = parse_line(line)
        if message is not None:
            try:
                (encoded,) = encode_all(CORE, [message])
            except InvalidInput as error:
                raise line.wrong(error) from error
            payloads.append(open_body(parse(b"1700000000000" + encoded.envelope)[1]))
    return payloads


def send_or_refuse(data: bytes) -> None:
    said = refusal(lambda: send(data), InvalidInput)
    assert not said or said.startswith("emails.jsonl, line ")
    assert len(said) < 1000


@pytest.mark.parametrize("name", CORPUS)
def test_invalid_message_is_refused_with_its_line_and_at_once(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"emails\.jsonl, line 2: ") as caught:
        send(b'{"payload": 1}\n' + CORPUS[name] + b"\n")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("blank", [b"", b"\n", b" \t\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n\n", b"\x0b\n"])
def test_file_without_a_message_sends_none(blank: bytes) -> None:
    assert send(blank) == []


def test_last_of_two_equal_names_wins_as_in_every_json_reader() -> None:
    assert send(b'{"payload": 1, "payload": 2}') == [2]


def test_payload_at_the_limit_is_sent_and_one_byte_more_is_not() -> None:
    limit = CORE.settings.max_payload - 2  # for the quotes
    assert send(b'{"payload": "' + b"x" * limit + b'"}') == ["x" * limit]
    with pytest.raises(InvalidInput, match="takes 1,048,577 bytes"):
        send(b'{"payload": "' + b"x" * (limit + 1) + b'"}')


@examples
@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    send_or_refuse(data)


@pytest.mark.full
@examples
@given(st.lists(lines, min_size=1, max_size=3).map(b"\n".join))
def test_line_with_hostile_values_is_a_message_or_refused(data: bytes) -> None:
    send_or_refuse(data)


@examples
@given(mutations(lines))
def test_damaged_line_is_a_message_or_refused(data: bytes) -> None:
    send_or_refuse(data)


@examples
@given(JSON)
def test_payload_of_a_line_is_received_unchanged(payload: Any) -> None:
    assert send(json.dumps({"payload": payload}).encode()) == [payload]


@pytest.mark.full
def test_line_reader_does_not_leak_memory() -> None:
    dice = random.Random(4)
    line = b'{"payload": {"to": "a@example.org", "n": [1, 2.5, null]}, "delay": "1h30m", "id": "order-42"}'

    def work(_: int) -> None:
        send_or_refuse(line)
        send_or_refuse(mutated(line, dice))

    assert growth(work, 6000) < GROWTH_BYTES


@pytest.mark.full
def test_long_file_is_not_held_in_memory() -> None:
    data = io.BytesIO(b'{"payload": "%s"}\n' % (b"x" * 1000) * 20_000)
    reader = read_lines(data, "emails.jsonl")
    assert growth(lambda _: parse_line(next(reader)), 20_000) < GROWTH_BYTES
