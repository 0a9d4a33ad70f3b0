"""One outcome that the server refuses is no outage: its neighbours are settled, and it fails in the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from delayq import Ack, Consumer, Message, Outgoing, Queue, Record, Reject, Topic, TopicConsumer, aio, backoff
from delayq.errors import LoginRefused
from delayq.model.outage import Outage
from delayq.runtime import refused_outcomes
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

NEIGHBOURS = 100
LARGE = 2_000_000


@pytest.fixture
def outages(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors that consumers have taken for outages."""
    found: list[Exception] = []
    lost = Outage.lost

    def note(self: Outage, error: Exception) -> float:
        found.append(error)
        return lost(self, error)

    monkeypatch.setattr(Outage, "lost", note)
    return found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let refused outcomes fail soon."""
    monkeypatch.setattr(refused_outcomes, "GIVE_UP_SECONDS", 0.3)


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url) as queue:
        yield queue


@pytest.fixture(params=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "async")


@contextmanager
def consuming(url: str, is_async: bool, handler: Callable[[Message], object]) -> Iterator[None]:
    """Consume the queue on a thread meanwhile."""
    stops: list[Callable[[], object]] = []
    consumers: list[Any] = []

    def run() -> None:
        with Queue("jobs", url=url, backoff=backoff.fixed(600), max_payload=10 * LARGE) as queue:
            consumer = Consumer(queue, handler, concurrency=2)
            consumers.append(consumer)
            stops.append(consumer.take_signal)
            consumer.run()

    async def run_async() -> None:
        async with aio.Queue("jobs", url=url, backoff=backoff.fixed(600), max_payload=10 * LARGE) as queue:
            consumer, events = aio.Consumer(queue, handler, concurrency=2), asyncio.get_running_loop()
            consumers.append(consumer)
            stops.append(lambda: events.call_soon_threadsafe(consumer.take_signal))
            await consumer.run()

    thread = threading.Thread(target=(lambda: asyncio.run(run_async())) if is_async else run)
    thread.start()
    assert eventually(lambda: bool(consumers) and consumers[0].is_running)
    try:
        yield
    finally:
        stops[0]()
        thread.join(60)
    assert not thread.is_alive()


def send(queue: Queue) -> None:
    queue.send("first", id="bad", max_retries=0)
    queue.send_many([Outgoing(number, id=f"n{number}") for number in range(NEIGHBOURS)])


@contextmanager
def setting(server: RedisServer, name: str, value: int, after: int) -> Iterator[None]:
    client = server.client()
    client.config_set(name, value)
    try:
        yield
    finally:
        client.config_set(name, after)
        client.close()


def chain(payload: object) -> Callable[[Message], object]:
    return lambda message: Ack(then=[Outgoing(payload, id="next", delay=600)]) if message.id == "bad" else None


def test_ack_and_send_waits_for_memory_while_others_are_acked(
    queue: Queue, redis_server: RedisServer, is_async: bool, outages: list[Exception]
):
    send(queue)
    with setting(redis_server, "maxmemory", 1, 0), consuming(redis_server.url, is_async, chain("more")):
        assert eventually(lambda: queue.stats().acked == NEIGHBOURS)
        assert queue.stats().unack == 1
        redis_server.client().config_set("maxmemory", 0)
        assert eventually(lambda: queue.stats().acked == NEIGHBOURS + 1)
    assert queue.get("next") is not None
    assert outages == []


@pytest.mark.usefixtures("soon")
def test_ack_and_send_that_stays_refused_fails(
    queue: Queue, redis_server: RedisServer, is_async: bool, outages: list[Exception]
):
    send(queue)
    with setting(redis_server, "maxmemory", 1, 0), consuming(redis_server.url, is_async, chain("more")):
        assert eventually(lambda: queue.stats().dead == 1)
        assert eventually(lambda: queue.stats().acked == NEIGHBOURS)
    info = queue.get("bad")
    assert info is not None
    assert "maxmemory" in str(info.error)
    assert outages == []


def test_message_above_the_servers_bulk_length_fails_alone(
    queue: Queue, redis_server: RedisServer, is_async: bool, outages: list[Exception]
):
    send(queue)
    before = 512 * 1024 * 1024
    with (
        setting(redis_server, "proto-max-bulk-len", 1_048_576, before),
        consuming(redis_server.url, is_async, chain(b"x" * LARGE)),
    ):
        assert eventually(lambda: queue.stats().acked == NEIGHBOURS)
        assert eventually(lambda: queue.stats().dead == 1)
    info = queue.get("bad")
    assert info is not None
    assert "ServerUnreachable" in str(info.error)
    assert outages == []


def test_large_message_is_sent_with_an_ack(queue: Queue, redis_server: RedisServer, is_async: bool):
    send(queue)
    with consuming(redis_server.url, is_async, chain(b"x" * LARGE)):
        assert eventually(lambda: queue.stats().acked == NEIGHBOURS + 1)
    assert queue.get("next") is not None


def refuse(queue: Any, monkeypatch: pytest.MonkeyPatch, names: Sequence[str]) -> None:
    """Let the server refuse these scripts for the message `bad`, as it does if the user may not touch its key."""
    run = queue._executor.run

    def refusing(calls: Any, repeat: bool = True) -> Any:
        is_bad = [bool(each.script and each.script.name in names and "bad" in each.args) for each in calls]
        others = [each for each, bad in zip(calls, is_bad, strict=True) if not bad]
        replies = iter(run(others, repeat) if others else ())
        return [LoginRefused("no right to this key") if bad else next(replies) for bad in is_bad]

    monkeypatch.setattr(queue._executor, "run", refusing)


def outcome_of(name: str) -> Callable[[Message], object]:
    def handle(message: Message) -> object:
        if message.id != "bad" or name == "ack":
            return None
        if name == "reject":
            raise Reject("x" * 5000)
        raise ValueError("x" * 5000)

    return handle


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", ["ack", "nack", "reject"])
def test_refusal_of_one_message_is_no_outage(
    queue: Queue, name: str, outages: list[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    refuse(queue, monkeypatch, ["ack", "nack", "reject"])
    queue.send("first", id="bad", max_retries=3 if name == "nack" else 0)
    consumer = Consumer(queue, outcome_of(name), concurrency=2)
    consumer.start()
    queue.send_many([Outgoing(number) for number in range(NEIGHBOURS)])
    assert eventually(lambda: queue.stats().acked >= NEIGHBOURS)

    def is_given_up() -> bool:
        queue.send("neighbour")  # the server must accept others
        return any("outcome cannot be settled" in record.getMessage() for record in caplog.records)

    assert eventually(is_given_up)
    consumer.stop()
    assert outages == []


def test_refusal_of_a_record_is_no_outage(redis_server: RedisServer, outages: list[Exception]):
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", "0", max_deliveries=1)
        client, buried = redis_server.client(), topic._context.shards[0].keys.buried("billing")

        def handle(record: Record) -> None:
            if record.payload == 0:
                raise Reject("unwanted")

        consumer = TopicConsumer(group, handle, concurrency=2)
        consumer.start()
        topic.publish("first")
        assert eventually(lambda: consumer.handled == 1)  # it has looked for records of others
        client.set(buried, "another program's")
        for number in range(20):
            topic.publish(number)
        assert eventually(lambda: consumer.handled == 20)
        assert outages == []
        client.delete(buried)
        assert eventually(lambda: [letter.record.payload for letter in group.dead()] == [0])
        consumer.stop()
        client.close()
