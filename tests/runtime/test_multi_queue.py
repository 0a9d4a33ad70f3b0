"""A consumer of several queues on separate servers: an unavailable one stops no other, and nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue, aio
from delayq.errors import ServerError
from delayq.runtime.fair_dispatch import QueueLane
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


@pytest.fixture
def servers(start_server: StartServer) -> tuple[RedisServer, RedisServer]:
    return start_server(appendonly=True), start_server(appendonly=True)


@pytest.fixture
def queues(servers: tuple[RedisServer, RedisServer]) -> Iterator[tuple[Queue, Queue]]:
    """Two queues, each on a server of its own."""
    with ExitStack() as stack:
        high, low = (
            stack.enter_context(Queue(name, url=server.url))
            for name, server in zip(("high", "low"), servers, strict=True)
        )
        yield high, low


@pytest.fixture
def pair(redis_client: redis.Redis) -> tuple[Queue, Queue]:
    """Two queues on one server."""
    return Queue("high", redis=redis_client), Queue("low", redis=redis_client)


def fill(queue: Queue, count: int) -> None:
    queue.send_many(Outgoing(number) for number in range(count))


@pytest.mark.parametrize("is_strict", [pytest.param(True, marks=pytest.mark.full), False], ids=["strict", "weights"])
def test_stopped_server_does_not_stop_the_other_queue(
    servers: tuple[RedisServer, RedisServer], queues: tuple[Queue, Queue], is_strict: bool
):
    high, low = queues
    fill(high, 1)
    seen: list[str] = []
    consumer = Consumer(list(queues), lambda message: seen.append(message.queue), strict=is_strict, concurrency=1)
    consumer.start()
    assert eventually(lambda: high.stats().acked == 1)
    servers[0].kill()
    low.send_many(
        Outgoing(number, delay=number * 0.05) for number in range(50)
    )  # while the other server is tried again
    assert eventually(lambda: seen.count("low") == 50)
    servers[0].start()
    fill(high, 10)
    assert eventually(lambda: seen.count("high") == 11)
    consumer.stop()
    assert (consumer.handled, high.stats().inside, low.stats().inside) == (61, 0, 0)


def test_queue_with_a_backlog_whose_server_dies_stops_no_queue_behind_it(
    servers: tuple[RedisServer, RedisServer], queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
):
    """The consumer notices when it settles, without room for another claim, and then at each try to renew leases."""
    high, low = queues
    fill(high, 20)
    fill(low, 50)
    seen: list[str] = []
    room = QueueLane.room

    def no_room_once_dead(lane: QueueLane[Message], seconds: float | None) -> int:
        lane._room = 0
        return 0 if seen and lane.number == 0 and "low" not in seen else room(lane, seconds)

    def handle(message: Message) -> None:
        seen.append(message.queue)
        if len(seen) == 1:
            servers[0].kill()

    monkeypatch.setattr(QueueLane, "room", no_room_once_dead)
    consumer = Consumer(list(queues), handle, strict=True, concurrency=1)
    consumer.start()
    assert eventually(lambda: low.stats().acked == 50, 10)
    servers[0].start()
    assert eventually(lambda: len(seen) >= 70, 60)
    consumer.stop()


@pytest.mark.full
def test_hanging_server_does_not_stop_the_other_queue(
    servers: tuple[RedisServer, RedisServer], queues: tuple[Queue, Queue]
):
    """It has received a claim and does not answer; one handler serves both queues."""
    high, low = queues
    seen: list[str] = []
    consumer = Consumer({high: 1000, low: 1}, lambda message: seen.append(message.queue), concurrency=1)
    consumer.start()
    fill(high, 1)
    assert eventually(lambda: seen == ["high"])
    os.kill(servers[0].pid, signal.SIGSTOP)
    try:
        fill(low, 50)
        assert eventually(lambda: seen.count("low") == 50)
    finally:
        os.kill(servers[0].pid, signal.SIGCONT)
    consumer.stop()


def test_server_unavailable_at_the_start_is_logged(
    servers: tuple[RedisServer, RedisServer], queues: tuple[Queue, Queue]
):
    servers[1].kill()
    with pytest.raises(ServerError):
        Consumer(list(queues), print).start()


@pytest.mark.full
def test_messages_are_split_by_weights_with_plain_handlers(pair: tuple[Queue, Queue]):
    """Only the handlers' own time keeps the queues backlogged."""
    high, low = pair
    fill(high, 900)
    fill(low, 300)
    seen: list[str] = []

    def handle(message: Message) -> None:
        seen.append(message.queue)
        time.sleep(0.002)

    assert Consumer({high: 5, low: 1}, handle, concurrency=1).run(max_messages=700) == 700
    counts = Counter(seen[-600:])  # the first ones go to the queue that answered first
    assert 480 <= counts["high"] <= 520
    for queue in pair:
        stats = queue.stats()
        assert (stats.unack, stats.missing, stats.sent - stats.acked) == (0, 0, stats.inside)


def test_no_more_handlers_run_than_the_concurrency(pair: tuple[Queue, Queue]):
    lock, running, most = threading.Lock(), 0, 0
    calls, meet = itertools.count(), threading.Barrier(3)

    def handle(_: Message) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if next(calls) < 3:
            meet.wait(120)
        time.sleep(0.001)
        with lock:
            running -= 1

    for queue in pair:
        fill(queue, 100)
    assert Consumer(list(pair), handle, concurrency=3).drain() == 200
    assert most == 3


def test_stop_by_a_handler_hands_back_messages_that_have_not_started(pair: tuple[Queue, Queue]):
    for queue in pair:
        fill(queue, 100)
    consumer: Consumer

    def handle(_: Message) -> None:
        consumer.stop()

    consumer = Consumer(list(pair), handle, concurrency=2)
    assert consumer.run() == consumer.handled <= 2
    assert [queue.stats().unack for queue in pair] == [0, 0]
    waiting = [queue.stats() for queue in pair]  # those of the second queue may not be promoted yet
    assert sum(stats.ready + stats.pending for stats in waiting) == 200 - consumer.handled
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("delayq-consumer")]


def test_consumer_can_run_again_and_keeps_counting(pair: tuple[Queue, Queue]):
    consumer = Consumer(list(pair), lambda message: message.queue == "high")
    for end in (1, 2):
        for queue in pair:
            fill(queue, 10)
        assert consumer.drain() == 20
        assert (consumer.handled, consumer.failed) == (20 * end, 10 * end)


def test_plain_and_async_handlers_share_the_permits(redis_server: RedisServer):
    """A permit that a thread gives back can start a task, and the other way round."""
    seen: list[str] = []

    async def main() -> None:
        async with aio.Queue("tasks", url=redis_server.url) as tasks, aio.Queue("plain", url=redis_server.url) as plain:

            @tasks.handler
            async def handle_async(message: aio.Message) -> None:
                await asyncio.sleep(0.001)
                seen.append(message.queue)

            @plain.handler
            def handle(message: aio.Message) -> None:
                time.sleep(0.001)
                seen.append(message.queue)

            for queue in (tasks, plain):
                await queue.send_many(Outgoing(number) for number in range(100))
            assert await aio.Consumer([tasks, plain], concurrency=1).drain() == 200
            assert [(await queue.stats()).inside for queue in (tasks, plain)] == [0, 0]

    asyncio.run(main())
    assert Counter(seen) == {"tasks": 100, "plain": 100}


def test_cancelled_async_consumer_leaves_nothing_behind(redis_server: RedisServer):
    async def main() -> None:
        async with aio.Queue("high", url=redis_server.url) as high, aio.Queue("low", url=redis_server.url) as low:
            begun = asyncio.Event()

            async def handle(_: aio.Message) -> None:
                begun.set()
                await asyncio.Event().wait()

            for queue in (high, low):
                await queue.send_many(Outgoing(number) for number in range(10))
            run = asyncio.create_task(aio.Consumer([high, low], handle, concurrency=1).run())
            await begun.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            stats = [await queue.stats() for queue in (high, low)]
            assert [(each.unack, each.nacked) for each in stats] == [(0, 0), (0, 0)]
            ready = [info for queue in (high, low) for info in await queue.peek("ready", limit=50)]
            assert [info.attempts for info in ready].count(1) == 1  # of the one that had started
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_queues_share_as_many_threads_as_handlers_run_at_once(redis_server: RedisServer, is_async: bool):
    names = [f"q{number}" for number in range(20)]
    seen: set[str] = set()
    workers: set[str] = set()

    def handle(message: Any) -> None:
        seen.add(message.queue)
        workers.update(each.name for each in threading.enumerate() if each.name.startswith("delayq-worker"))

    for name in names:
        with Queue(name, url=redis_server.url) as queue:
            fill(queue, 3)

    async def drain() -> int:
        async with AsyncExitStack() as stack:
            queues = [await stack.enter_async_context(aio.Queue(each, url=redis_server.url)) for each in names]
            return await aio.Consumer(queues, handle, concurrency=3).drain()

    if is_async:
        assert asyncio.run(drain()) == 60
    else:
        with ExitStack() as stack:
            queues = [stack.enter_context(Queue(each, url=redis_server.url)) for each in names]
            assert Consumer(queues, handle, concurrency=3).drain() == 60
    assert (seen, workers) == (set(names), {f"delayq-worker-{number}" for number in range(3)})
    assert eventually(lambda: not any(each.name.startswith("delayq-worker") for each in threading.enumerate()))
