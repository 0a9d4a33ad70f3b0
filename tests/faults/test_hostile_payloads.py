"""Payloads, headers and ids of any content go through a real server unchanged."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput, InvalidName
from delayq.model.message import Message
from delayq.model.validation import check_id
from tests.harness.hostile import JSON, TEXTS, examples, texts
from tests.harness.servers import RedisServer

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    [each for each in TEXTS if each.isprintable() or each.isascii()]
)
headers = st.dictionaries(
    text,
    text | st.binary() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.booleans() | st.none(),
    max_size=4,
)
payloads = st.binary(max_size=300) | JSON


def is_id(given: str) -> bool:
    with contextlib.suppress(InvalidName):
        return bool(check_id(given))
    return False


ids = texts.filter(is_id)


def through(queue: Queue, outgoing: Outgoing) -> Message:
    """Send a message, and receive it."""
    queue.send_many([outgoing])
    (message,) = queue.receive()
    return message


@pytest.mark.full
@examples
@given(payloads, headers, ids)
def test_message_is_received_as_it_was_sent(
    redis_server: RedisServer, payload: Any, names: dict[str, Any], id: str
) -> None:
    redis_server.flush()
    with Queue("emails", url=redis_server.url) as queue:
        message = through(queue, Outgoing(payload, id=id, headers=names))
        assert (message.payload, message.headers, message.id) == (payload, names, id)
        info = queue.get(id)
        assert info is not None
        assert (info.payload, info.headers, info.state) == (payload, names, "unack")
        assert queue.cancel(id) == "in_flight"
        message.nack(error=id)
        assert queue.collect_garbage() == 1
        assert queue.stats().inside == 0


@pytest.mark.full
@examples
@given(st.lists(st.tuples(ids, payloads), min_size=2, max_size=8, unique_by=lambda pair: pair[0]))
def test_ids_that_look_alike_are_different_messages(redis_server: RedisServer, pairs: list[tuple[str, Any]]) -> None:
    redis_server.flush()
    with Queue("emails", url=redis_server.url) as queue:
        queue.send_many([Outgoing(payload, id=each) for each, payload in pairs])
        assert {message.id: message.payload for message in queue.receive()} == dict(pairs)


@examples
@given(ids, texts, texts)
def test_dead_letter_keeps_any_text_as_error_and_reason(
    redis_server: RedisServer, id: str, reason: str, error: str
) -> None:
    redis_server.flush()
    with Queue("emails", url=redis_server.url) as queue:
        through(queue, Outgoing("x", id=id)).reject(reason, error=error)
        (letter,) = queue.dead.list()
        assert letter.id == id
        assert letter.reason
        assert queue.dead.requeue(id) == 1


def test_invalid_id_is_refused_by_every_call(redis_server: RedisServer) -> None:
    with Queue("emails", url=redis_server.url) as queue, redis_server.client() as client:
        for wrong in (each for each in TEXTS if not is_id(each)):
            for call in (partial(queue.send, "x", id=wrong), partial(queue.get, wrong), partial(queue.cancel, wrong)):
                with pytest.raises(InvalidName):
                    call()
            assert client.keys("*:msg:*") == [], ascii(wrong)


@pytest.mark.full
@examples
@given(st.dictionaries(texts, JSON | st.binary() | texts, max_size=3), texts | JSON)
def test_message_that_cannot_be_stored_is_refused_and_leaves_nothing(
    redis_server: RedisServer, names: dict[str, Any], payload: Any
) -> None:
    redis_server.flush()
    with Queue("emails", url=redis_server.url) as queue:
        try:
            queue.send(payload, headers=names)
        except InvalidInput:
            assert queue.stats().sent == 0
        else:
            (message,) = queue.receive()
            assert (message.payload, message.headers) == (payload, names)


@pytest.mark.parametrize("foreign", [b"\xff", b"\0", b"", b"x" * 9000], ids=["no-text", "nul", "empty", "long"])
def test_foreign_envelope_is_buried_and_the_next_message_delivered(foreign: bytes, any_server: RedisServer) -> None:
    with Queue("emails", url=any_server.url) as queue, any_server.client() as client:
        queue.send("x", id="foreign")
        client.set("delayq:{emails}:msg:foreign", foreign)
        queue.send("x", id="own")
        assert [message.id for message in queue.receive()] == ["own"]
        assert [letter.reason for letter in queue.dead.list()] == ["unreadable-envelope"]
