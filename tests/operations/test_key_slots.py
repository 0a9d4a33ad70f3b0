"""The limit per key with several consumers, and when they are killed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue, aio
from delayq.operations import claim, key_slots
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

KEYS = "delayq:{jobs}:"
PATIENCE = 120.0


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=redis_client, concurrency_key=lambda message: message.id[0]) as queue:
        queue.stats()
        limit(redis_client, 2)
        yield queue


def limit(client: Any, count: int) -> None:
    client.hset(KEYS + "meta", "per_key", count)


def send(queue: Queue, *ids: str) -> None:
    queue.send_many([Outgoing("x", id=id) for id in ids])


@pytest.fixture
def consume(queue: Queue) -> Iterator[Callable[..., Consumer]]:
    """``consume(handler, concurrency)``: runs until the test ends."""
    started: list[Consumer] = []

    def consume(handler: Callable[[Message], object], concurrency: int) -> Consumer:
        started.append(Consumer(queue, handler, concurrency=concurrency))
        started[-1].start()
        return started[-1]

    yield consume
    for consumer in started:
        consumer.stop(timeout=0)


def test_messages_of_one_key_leave_room_for_others(queue: Queue, consume: Callable[..., Consumer]) -> None:
    over = threading.Event()
    begun: list[str] = []

    def handle(message: Message) -> None:
        begun.append(message.id)
        if message.id.startswith("b"):
            over.wait(PATIENCE)

    send(queue, *(f"b{number:03}" for number in range(100)))
    consume(handle, 4)
    assert eventually(lambda: sorted(begun) == ["b000", "b001"] and queue.stats().pending == 98)
    send(queue, "s1", "s2", "s3")
    assert eventually(lambda: {"s1", "s2", "s3"} <= set(begun))
    assert sorted(each for each in begun if each.startswith("b")) == ["b000", "b001"]
    over.set()
    assert eventually(lambda: queue.stats().acked == 103)
    assert "b099" in [each for each in begun if each.startswith("b")][-2:]  # two at a time


@pytest.mark.full
def test_consumer_takes_no_slots_for_messages_that_it_cannot_start(
    queue: Queue, redis_client: redis.Redis, consume: Callable[..., Consumer]
) -> None:
    """A consumer that claims ahead for quick handlers would hold slots while others are idle."""
    limit(redis_client, 50)
    held: list[Any] = []

    def handle(_: Message) -> None:
        time.sleep(0.002)
        held.append(redis_client.zcard(KEYS + "slots"))

    send(queue, *(f"b{number:03}" for number in range(200)))
    consume(handle, 2)
    assert eventually(lambda: queue.stats().acked == 200)
    assert max(held) <= 4  # two run, and two may have just ended


def test_idle_consumer_soon_frees_lost_slots(
    queue: Queue, redis_client: redis.Redis, consume: Callable[..., Consumer]
) -> None:
    """As if a consumer had been killed after the acks, before it could free their slots."""
    send(queue, "b1", "b2", "b3", "b4")
    first = queue.receive()
    acks = queue._context.shards[0].ack([(message.id, message.receipt) for message in first])
    assert queue._executor.run([acks]) == [[1, 1]]
    assert redis_client.zcard(KEYS + "slots") == 2
    handled: list[str] = []
    consume(lambda message: handled.append(message.id), 1)
    assert eventually(lambda: handled == ["b3", "b4"])
    assert eventually(lambda: not redis_client.exists(KEYS + "slots", KEYS + "waiting", KEYS + "parked"))


@pytest.mark.parametrize("step", ["claimed", "admitted", "let-go"])
def test_killed_consumer_holds_no_slot_longer_than_its_lease(queue: Queue, step: str) -> None:
    send(queue, "b1", "b2", "b3", "b4")
    scripts = queue._context.shards[0]
    if step == "let-go":  # the next ones are claimed, and their consumer is killed before it has admitted them
        queue.ack(queue.receive())
    if step == "admitted":
        queue.receive(lease=0.001)
    else:
        queue._executor.run([scripts.pending_to_ready(), scripts.ready_to_unack(4, 1)])
    assert eventually(lambda: queue.execute(claim.recover) is not None and not running(queue))
    left = 2 if step == "let-go" else 4
    for _ in range(left // 2):
        messages = queue.receive()
        assert len(messages) == 2
        assert len(queue.receive()) == 0
        assert all(queue.ack(messages))
    stats = queue.stats()
    assert (stats.acked, stats.inside, stats.missing) == (4, 0, 0)


def running(queue: Queue) -> int:
    return queue.stats().unack


def test_script_flush_stops_nothing(queue: Queue, redis_client: redis.Redis) -> None:
    send(queue, *(f"b{number}" for number in range(6)))
    handled = 0
    while handled < 6:
        redis_client.script_flush()
        messages = queue.receive()
        assert len(messages) == 2
        redis_client.script_flush()
        assert all(queue.ack(messages))
        handled += len(messages)
    assert not redis_client.exists(KEYS + "slots", KEYS + "waiting", KEYS + "parked")


@pytest.mark.parametrize("how", ["cancelled", "payload-gone"])
def test_message_that_ends_after_it_was_let_go_delays_the_next_only_briefly(
    queue: Queue, redis_client: redis.Redis, how: str
) -> None:
    send(queue, "b1", "b2", "b3", "b4", "b5")
    queue.ack(queue.receive())
    for message_id in ("b3", "b4"):
        if how == "cancelled":
            assert queue.cancel(message_id) == "cancelled"
        else:
            redis_client.delete(KEYS + f"msg:{message_id}")
    assert queue.receive() == []
    queue.execute(key_slots.look_through)
    assert [message.id for message in queue.receive()] == ["b5"]


def test_full_server_keeps_delivering_waiting_messages(queue: Queue, redis_server: RedisServer) -> None:
    send(queue, *(f"b{number}" for number in range(6)))
    with redis_server.client() as admin:
        admin.config_set("maxmemory", 1)
        try:
            for _ in range(3):
                messages = queue.receive()
                assert len(messages) == 2
                assert all(queue.ack(messages))
        finally:
            admin.config_set("maxmemory", 0)
    assert queue.stats().acked == 6


def no_key(_: object) -> str:
    raise KeyError("tenant")


@pytest.mark.parametrize("several", [False, True], ids=["one queue", "several queues"])
def test_delivery_whose_key_function_fails_counts_as_handled_and_failed(
    redis_client: redis.Redis, several: bool
) -> None:
    with Queue("jobs", redis=redis_client, concurrency_key=no_key, concurrency_per_key=1) as queue:
        queue.send_many([Outgoing(n) for n in range(3)])
        others = [Queue("others", redis=redis_client)] if several else []
        consumer = Consumer([queue, *others], lambda _: None)
        assert consumer.run(max_messages=3) == 3
        assert (consumer.handled, consumer.failed) == (3, 3)
        assert queue.stats().nacked == 3


def test_delivery_whose_key_function_fails_counts_on_the_event_loop_too(redis_server: RedisServer) -> None:
    async def run() -> tuple[int, int, int]:
        async with aio.Queue("jobs", url=redis_server.url, concurrency_key=no_key, concurrency_per_key=1) as queue:
            await queue.send_many([Outgoing(n) for n in range(3)])
            consumer = aio.Consumer(queue, lambda _: None)
            return await consumer.run(max_messages=3), consumer.handled, consumer.failed

    assert asyncio.run(run()) == (3, 3, 3)
