"""What a failed handler leaves behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import Consumer, Message, NewRecord, Outgoing, Queue, Record, Topic, TopicConsumer, aio, backoff
from tests.harness.servers import RedisServer

COUNT = 20
FAILURES = 10_000


class Held:
    """Something large that a handler holds when it fails."""

    def __init__(self) -> None:
        self.bytes = bytearray(1000)


@pytest.fixture
def left() -> Iterator[list[weakref.ref[Held]]]:
    """How many objects of handlers are still referenced. Without the garbage collector, cycles stay."""
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
def test_failed_async_handler_leaves_nothing_to_the_garbage_collector(
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


def test_failed_topic_handler_leaves_nothing_to_the_garbage_collector(
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


FAILING = """
import asyncio, gc, sys
from delayq import Consumer, Outgoing, Queue, aio, backoff

url, kind, failures = sys.argv[1], sys.argv[2], int(sys.argv[3])
TRIES = 10
options = {"url": url, "max_retries": TRIES - 1, "backoff": backoff.fixed(0)}
sizes = []
gc.disable()

def fail(given):
    held = [given]
    raise ValueError(f"for {held!r}")

async def fail_async(given):
    await asyncio.sleep(0)
    fail(given)

def messages(tenths):
    return (Outgoing(number) for number in range(failures * tenths // 10 // TRIES))

def note():
    sizes.append((len(gc.get_objects()), sys.getallocatedblocks()))

def blocking():
    with Queue("jobs", **options) as queue:
        (queue.handler if kind == "each" else queue.batch_handler)(fail)
        consumer = Consumer(queue, concurrency=2)
        for tenths in (1, 9):
            queue.send_many(messages(tenths))
            assert consumer.drain() == failures * tenths // 10
            note()

async def awaited():
    async with aio.Queue("jobs", **options) as queue:
        (queue.handler if kind == "async" else queue.batch_handler)(fail_async)
        consumer = aio.Consumer(queue, concurrency=2)
        for tenths in (1, 9):
            await queue.send_many(messages(tenths))
            assert await consumer.drain() == failures * tenths // 10
            note()

blocking() if kind in ("each", "batch") else asyncio.run(awaited())
(objects, blocks), (more_objects, more_blocks) = sizes
print(more_objects - objects, more_blocks - blocks)
"""


@pytest.mark.parametrize(
    "kind", ["batch", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("each", "async", "async-batch"))]
)
def test_memory_stays_flat_over_thousands_of_failures_without_the_garbage_collector(
    redis_server: RedisServer, kind: str
):
    command = [sys.executable, "-W", "ignore", "-c", FAILING, redis_server.url, kind, str(FAILURES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    objects, blocks = map(int, done.stdout.split())  # what the last nine tenths of the failures added
    assert objects < FAILURES // 20
    assert blocks < FAILURES
