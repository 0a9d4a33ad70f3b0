"""Payloads, headers and ids of any content go through a real server unchanged, and a bad one ends only its message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from delayq.cli.output import payload_text, record
from hypothesis import given
from hypothesis import strategies as st

from delayq import Consumer, Message, Outgoing, Queue, Topic, TopicConsumer, aio, backoff
from delayq.errors import InvalidInput, InvalidName, PayloadNotSerializable, UnreadableEnvelope
from delayq.model.delivery import Delivery
from delayq.model.envelope import FORMAT, MAX_DEPTH, Envelope, encode
from delayq.model.envelope import JSON as JSON_KIND
from delayq.model.record import ENVELOPE
from delayq.model.validation import check_id
from delayq.testing import assert_dead, in_memory, sent
from delayq.web.api.values import payload_fields
from delayq.web.payloads import pretty
from delayq.web.redaction import Redaction
from tests.harness import bodies, pooled
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


NEIGHBOURS = [f"neighbour {number}" for number in range(4)]


def read(message: Delivery[Any], handled: list[str]) -> None:
    """Read a payload, as handlers do."""
    assert message.payload is not None
    handled.append(message.id)


def in_threads(queue: Queue, handled: list[str]) -> None:
    Consumer(queue, lambda message: read(message, handled), concurrency=2).drain()


def in_typed_threads(queue: Queue, handled: list[str]) -> None:
    def handle(message: Message[list[Any] | dict[str, Any] | int | str]) -> None:
        read(message, handled)

    Consumer(queue, handle, concurrency=2).drain()


def in_batches(queue: Queue, handled: list[str]) -> None:
    @queue.batch_handler
    def handle(messages: list[Message]) -> None:
        for message in messages:
            read(message, handled)

    Consumer(queue, concurrency=1).drain()


def in_typed_batches(queue: Queue, handled: list[str]) -> None:
    @queue.batch_handler
    def handle(messages: list[Message[list[Any] | dict[str, Any] | int | str]]) -> None:
        for message in messages:
            read(message, handled)

    Consumer(queue, concurrency=1).drain()


def in_tasks(queue: Queue, handled: list[str]) -> None:
    async def run() -> None:
        async with aio.Queue(queue.name) as same:

            @same.handler
            async def handle(message: aio.Message) -> None:
                read(message, handled)

            await aio.Consumer(same).drain()

    asyncio.run(run())


def in_batches_of_tasks(queue: Queue, handled: list[str]) -> None:
    async def run() -> None:
        async with aio.Queue(queue.name) as same:

            @same.batch_handler
            async def handle(messages: list[aio.Message]) -> None:
                for message in messages:
                    read(message, handled)

            await aio.Consumer(same, concurrency=1).drain()

    asyncio.run(run())


def received(queue: Queue, handled: list[str]) -> None:
    for message in queue.receive(100):
        try:
            read(message, handled)
        except UnreadableEnvelope as error:
            message.reject("unreadable-envelope", error)
        else:
            message.ack()


TAKERS: dict[str, Callable[[Queue, list[str]], None]] = {
    each.__name__: each
    for each in (in_threads, in_typed_threads, in_batches, in_typed_batches, in_tasks, in_batches_of_tasks, received)
}


@pytest.fixture
def store(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queues use an empty server."""
    monkeypatch.setenv("DELAYQ_URL", redis_server.url)


@pytest.fixture
def surrounded(store: None) -> Iterator[Queue]:  # noqa: ARG001
    """A queue in which the hostile bodies are between messages of others."""
    with Queue("jobs") as queue:
        queue.send_many([Outgoing({"a": 1}, id=name) for name in NEIGHBOURS[:2]])
        bodies.write(queue, bodies.BODIES)
        queue.send_many([Outgoing({"a": 1}, id=name) for name in NEIGHBOURS[2:]])
        yield queue


def check(queue: Queue, handled: list[str]) -> None:
    """Check that only the unreadable messages are dead, and that the others were handled once."""
    assert sorted(handled) == sorted([*NEIGHBOURS, *bodies.READABLE])
    letters = queue.dead.list(100)
    assert {letter.id for letter in letters} == set(bodies.UNREADABLE)
    assert {letter.reason for letter in letters} <= {"unreadable-envelope", "payload-mismatch"}
    stats = queue.stats()
    assert (stats.acked, stats.nacked, stats.inside - stats.dead) == (len(handled), 0, 0)


@pytest.mark.parametrize("taker", TAKERS)
def test_body_that_cannot_be_decoded_ends_only_its_message(surrounded: Queue, taker: str) -> None:
    handled: list[str] = []
    TAKERS[taker](surrounded, handled)
    check(surrounded, handled)


def test_body_that_cannot_be_decoded_ends_only_its_message_in_processes(
    surrounded: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pooled.WHERE, str(tmp_path))
    Consumer(surrounded, pooled.read, pool="process", concurrency=2).drain()
    check(surrounded, [message_id for message_id, _ in pooled.notes("read")])


def test_body_that_cannot_be_decoded_ends_only_its_message_in_the_test_kit() -> None:
    with Queue("jobs") as queue, in_memory(queue) as clock:
        queue.send_many([Outgoing({"a": 1}, id=name) for name in NEIGHBOURS])
        bodies.write(queue, bodies.BODIES)
        handled: list[str] = []

        @queue.batch_handler
        def handle(messages: list[Message]) -> None:
            for message in messages:
                read(message, handled)

        clock.run_for(seconds=1)
        check(queue, handled)
        assert len(sent(queue)) == len(NEIGHBOURS) + len(bodies.BODIES)
        assert_dead(queue, id="cut")


@pytest.mark.usefixtures("store")
def test_body_that_cannot_be_decoded_ends_only_its_record(redis_client: redis.Redis) -> None:
    with Topic("news") as topic:
        group = topic.group("readers", start="0")
        topic.publish({"a": 1})
        (stream,) = [key for key in redis_client.keys("*") if redis_client.type(key) == b"stream"]
        for body in bodies.BODIES.values():
            redis_client.xadd(stream, {ENVELOPE: encode(Envelope(FORMAT, JSON_KIND, body, 0))})
        topic.publish({"a": 1})
        handled: list[Any] = []
        TopicConsumer(group, lambda each: handled.append(each.payload)).drain()
        assert len(handled) == 2 + len(bodies.READABLE)
        letters = group.dead(100)
        assert [letter.reason for letter in letters] == ["unreadable-envelope"] * len(bodies.UNREADABLE)


@pytest.mark.parametrize("batched", [False, True], ids=["alone", "in-a-batch"])
@pytest.mark.usefixtures("store")
def test_unreadable_message_of_another_queue_is_no_verdict_on_those_of_its_reader(batched: bool) -> None:
    with Queue("jobs", backoff=backoff.fixed(3600)) as queue, Queue("others") as others:
        queue.send_many([Outgoing("x", id=name) for name in NEIGHBOURS])
        bodies.write(others, bodies.UNREADABLE)

        def look(_: Any) -> None:
            for info in others.peek("pending", 100) + others.peek("ready", 100):
                assert info.payload

        if batched:
            queue.batch_handler(look)
        Consumer(queue, None if batched else look).drain()
        assert (queue.stats().retry, queue.stats().dead) == (len(NEIGHBOURS), 0)


@pytest.mark.parametrize("name", bodies.BODIES)
def test_any_body_can_be_looked_at(surrounded: Queue, name: str) -> None:
    info = surrounded.get(name)
    assert info is not None
    assert msgspec.json.decode(msgspec.json.encode(record(info)))["id"] == name
    assert payload_text(info, 100) or name == "empty"
    assert surrounded.why(name)
    shown = payload_fields(info.envelope, Redaction(["password"]))
    assert shown["payload_kind"] in ("json", "bytes")
    assert pretty(info.envelope.body) or name == "empty"  # type: ignore[union-attr]


def nested(levels: int, make: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = make(value)
    return value


@pytest.mark.parametrize(
    ("make", "levels"),
    [
        (lambda value: [value], 1),
        (lambda value: {"a": value}, 1),
        (lambda value: (value,), 1),
        (lambda value: {'\\"[': [value, "]"], "]": 1}, 2),
    ],
    ids=["lists", "objects", "tuples", "brackets-in-strings"],
)
@pytest.mark.usefixtures("store")
def test_payload_that_nests_too_deep_for_a_reader_is_refused(make: Callable[[Any], Any], levels: int) -> None:
    with Queue("jobs") as queue:
        queue.send(nested(MAX_DEPTH // levels, make), id="x")
        (message,) = queue.receive()
        assert message.payload is not None
        for more in (MAX_DEPTH // levels + 1, 900, 100_000):
            with pytest.raises(PayloadNotSerializable):
                queue.send(nested(more, make))
        with pytest.raises(PayloadNotSerializable, match="nests lists and objects more than 500 levels deep"):
            queue.send(nested(MAX_DEPTH // levels + 1, make))
        assert queue.stats().sent == 1


@pytest.mark.usefixtures("store")
def test_wide_payload_is_not_taken_for_a_deep_one() -> None:
    with Queue("jobs") as queue:
        payload = [{"a": [number, '["']} for number in range(5000)]
        assert through(queue, Outgoing(payload)).payload == payload
