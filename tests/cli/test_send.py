"""send: how it reads a payload, and that every option reaches the message."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from delayq import Queue
from delayq.model.message_info import MessageInfo
from tests.cli.conftest import Invoke, Run


def only(queue: Queue) -> MessageInfo:
    """The only message."""
    (message,) = queue.peek("pending")
    return message


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("hello", "hello"),
        ("a@example.org", "a@example.org"),
        ("42", 42),
        ('"42"', "42"),
        ("true", True),
        ("null", None),
        ("[1, 2]", [1, 2]),
        ('{"to": "a"}', {"to": "a"}),
        ('{"to": ', '{"to": '),
        ("NaN", "NaN"),
        ("", ""),
        ("ü€😀", "ü€😀"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_payload_is_json_if_valid_else_a_string(text: str, payload: Any, invoke: Invoke, queue: Queue):
    result = invoke("send", "emails", text)
    assert result.exit_code == 0
    assert only(queue).payload == payload


@pytest.mark.parametrize(
    ("kind", "text", "payload"),
    [("text", "42", "42"), ("raw", "42", b"42"), ("json", " 42 ", 42), ("auto", "42", 42)],
)
def test_kind_of_the_payload_can_be_given(kind: str, text: str, payload: Any, invoke: Invoke, queue: Queue):
    invoke("send", "emails", text, "--as", kind)
    assert only(queue).payload == payload


def test_json_is_stored_as_written(invoke: Invoke, queue: Queue):
    written = '{"big": 123456789012345678901234567890, "price": 1.10}'
    invoke("send", "emails", written)
    assert only(queue).body == written.encode()


def test_message_has_five_retries_by_default(invoke: Invoke, queue: Queue):
    invoke("send", "emails", "hello")
    assert only(queue).max_retries == 5
    text = " ".join(invoke("send", "--help").output.split())
    assert "Default: the setting of delayq configure, else 5" in text


def test_payload_comes_from_stdin(invoke: Invoke, queue: Queue):
    assert invoke("send", "emails", "-", input="hello\n").exit_code == 0
    assert only(queue).payload == "hello"


def test_bytes_come_from_stdin_as_they_are(delayq: Run, queue: Queue):
    body = bytes(range(256)) + b"\n"
    done = delayq("send", "emails", "-", "--as", "raw", input=body, text=False)
    assert done.returncode == 0
    assert only(queue).payload == body


def test_binary_payload_is_refused_with_a_remedy(invoke: Invoke, queue: Queue):
    result = invoke("send", "emails", "-", input=b"\xff\xfe")
    assert result.exit_code == 2
    assert "give --as raw" in result.stderr
    assert queue.stats().sent == 0


def test_options_reach_the_message(invoke: Invoke, queue: Queue):
    words = ["--delay", "1h30m", "--id", "order-42", "--expires-in", "2h", "--max-retries", "7", "--timeout", "90"]
    result = invoke("send", "emails", "hello", *words, "-H", "kind=invoice", "--header", "empty=", "-H", "eq=a=b")
    assert result.exit_code == 0
    info = only(queue)
    assert info.created_at is not None
    assert info.due_at is not None
    assert info.expires_at is not None
    assert (info.id, info.max_retries, info.timeout) == ("order-42", 7, 90)
    assert info.headers == {"kind": "invoice", "empty": "", "eq": "a=b"}
    assert dt.timedelta(minutes=90) <= info.due_at - info.created_at <= dt.timedelta(minutes=90, milliseconds=1)
    assert info.expires_at - info.created_at == dt.timedelta(hours=2)


def test_moment_is_kept_to_the_millisecond(invoke: Invoke, queue: Queue):
    invoke("send", "emails", "hello", "--at", "2046-12-24T18:00:00.123+01:00")
    assert only(queue).due_at == dt.datetime(2046, 12, 24, 17, 0, 0, 123_000, tzinfo=dt.UTC)


def test_sent_message_is_printed_as_json(invoke: Invoke, queue: Queue):
    document = json.loads(invoke("send", "emails", "hello", "--delay", "1h", "--json").stdout)
    info = only(queue)
    assert info.due_at is not None
    assert document == {"id": info.id, "due_at": info.due_at.isoformat().replace("+00:00", "Z"), "created": True}


def test_existing_id_is_kept_replaced_or_refused(invoke: Invoke, queue: Queue):
    send = ["send", "emails", "--id", "order-42"]
    assert invoke(*send, "first").stdout.startswith("sent order-42 to emails, due ")
    assert invoke(*send, "second").stdout.startswith("order-42 is already in emails: unchanged, due ")
    assert only(queue).payload == "first"
    refused = invoke(*send, "third", "--on-conflict", "error")
    assert refused.exit_code == 1
    assert "'order-42' exists already" in refused.stderr
    assert invoke(*send, "fourth", "--on-conflict", "replace").stdout.startswith("replaced order-42 in emails, due ")
    assert only(queue).payload == "fourth"


def test_id_is_reserved_beyond_its_ack(invoke: Invoke, queue: Queue):
    send = ["send", "emails", "x", "--id", "alarm", "--unique-for"]
    assert invoke(*send, "1h").stdout.startswith("sent alarm to emails, due ")
    assert queue.ack(queue.receive()) == [True]
    expected = "alarm is already in emails, or reserved: nothing was sent\n"
    assert invoke(*send, "1m").stdout == expected
    assert json.loads(invoke(*send, "1m", "--json").stdout)["created"] is False
    assert queue.stats().sent == 1


def test_reservation_without_an_id_is_refused(invoke: Invoke, queue: Queue):
    refused = invoke("send", "emails", "x", "--unique-for", "1h")
    assert refused.exit_code == 2
    assert "needs an id" in refused.stderr
    assert queue.stats().sent == 0


def test_queue_under_another_prefix_is_another_queue(invoke: Invoke, queue: Queue):
    invoke("send", "emails", "hello", "--prefix", "other")
    assert queue.stats().sent == 0
    assert json.loads(invoke("stats", "emails", "--prefix", "other", "--json").stdout)["sent"] == 1


def test_queue_is_used_with_its_recorded_number_of_shards(invoke: Invoke, server: Any):
    with Queue("wide", url=server.url, shards=5) as wide:
        wide.send("first")
        for number in range(10):
            assert invoke("send", "wide", str(number)).exit_code == 0
        assert wide.stats().pending == 11


def test_embedded_store_is_the_default(delayq: Run):
    nowhere = {"DELAYQ_URL": None}
    assert delayq("send", "emails", "hello", env=nowhere).returncode == 0
    done = delayq("consume", "emails", "--exec", "cat", "--burst", env=nowhere)
    assert (done.returncode, done.stdout) == (0, '"hello"')
