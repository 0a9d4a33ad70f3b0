"""What a handler has left behind when it failed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import Consumer, Message, NewRecord, Outgoing, Queue, Record, Topic, TopicConsumer, aio, backoff
from tests.harness.servers import RedisServer

COUNT = 20


class Held:
    """Something large that a handler has at hand when it fails."""

    def __init__(self) -> None:
        self.bytes = bytearray(1000)


@pytest.fixture
def left() -> Iterator[list[weakref.ref[Held]]]:
    """References to what handlers had; without the garbage collector, nothing that is part of a cycle ends."""
    gc.collect()
    gc.disable()
    yield []
    gc.enable()


def failing(left: list[weakref.ref[Held]]) -> Callable[[Any], None]:
    def handle(message: Any) -> None:
        held = Held()
        left.append(weakref.ref(held))
        raise ValueError(f"{len(held.bytes)} bytes for {message!r}")

    return handle


def check(left: list[weakref.ref[Held]], count: int) -> None:
    assert len(left) == count
    assert [each for each in left if each() is not None] == []


@pytest.mark.parametrize("kind", ["each", "batch"])
def test_failed_handler_leaves_nothing_to_the_garbage_collector(
    redis_server: RedisServer, left: list[weakref.ref[Held]], kind: str
):
    with Queue("emails", url=redis_server.url, max_retries=1, backoff=backoff.fixed(0)) as queue:
        (queue.handler if kind == "each" else queue.batch_handler)(failing(left))
        queue.send_many([Outgoing(number) for number in range(COUNT)])
        consumer = Consumer(queue, concurrency=2)
        assert consumer.drain() == 2 * COUNT
        assert queue.stats().dead == COUNT
    check(left, 2 * COUNT if kind == "each" else len(left))


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
def test_failed_handler_of_the_async_face_leaves_nothing_to_the_garbage_collector(
    redis_server: RedisServer, left: list[weakref.ref[Held]], is_async: bool
):
    fail = failing(left)

    async def handle(message: Message) -> None:
        fail(message)

    async def main() -> None:
        async with aio.Queue("emails", url=redis_server.url, max_retries=1, backoff=backoff.fixed(0)) as queue:
            await queue.send_many([Outgoing(number) for number in range(COUNT)])
            assert await aio.Consumer(queue, handle if is_async else fail, concurrency=2).drain() == 2 * COUNT

    asyncio.run(main())
    check(left, 2 * COUNT)


def test_failed_handler_of_a_topic_leaves_nothing_to_the_garbage_collector(
    redis_server: RedisServer, left: list[weakref.ref[Held]]
):
    def handle(record: Record) -> None:
        failing(left)(record)

    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", max_deliveries=2)
        topic.publish_many([NewRecord(number) for number in range(COUNT)])
        assert TopicConsumer(group, handle, backoff=backoff.fixed(0)).drain() == 2 * COUNT
        assert len(group.dead()) == COUNT
    check(left, 2 * COUNT)
