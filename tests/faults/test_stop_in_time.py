"""A consumer stops within its time, also if the server has frozen or its packets are dropped."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from delayq import Consumer, Queue, Topic, TopicConsumer, aio
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import Stopwatch, eventually

TIMEOUT, SLACK = 3.0, 2.5  # seconds; the second for a loaded machine, and the end of the heartbeat


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def ways(queue: Queue, topic: Topic) -> dict[str, Callable[[Callable[[Any], object]], Any]]:
    return {
        "queue": lambda handler: Consumer(queue, handler, concurrency=1),
        "topic": lambda handler: TopicConsumer(topic.group("billing"), handler, concurrency=1),
    }


@pytest.mark.parametrize("way", ["queue", "topic"])
@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_consumer_of_a_frozen_server_stops_in_time(start_server: StartServer, way: str, is_busy: bool):
    server, began, ends = start_server(), threading.Event(), threading.Event()

    def handle(_: object) -> None:
        began.set()
        ends.wait(120)

    with Queue("jobs", url=server.url) as queue, Topic("orders", url=server.url) as topic:
        consumer = ways(queue, topic)[way](handle)
        consumer.start()
        if is_busy:
            queue.send("long")
            topic.publish("long")
            assert began.wait(120)
        time.sleep(0.3)  # it falls asleep
        with frozen(server):
            try:
                with Stopwatch() as watch:
                    consumer.stop(timeout=TIMEOUT)
            finally:
                ends.set()
        assert watch.running < TIMEOUT + SLACK


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_async_consumer_of_a_frozen_server_stops_in_time(start_server: StartServer, is_busy: bool):
    server, began = start_server(), threading.Event()

    async def handle(_: object) -> None:
        began.set()
        await asyncio.sleep(30)

    async def main() -> float:
        async with aio.Queue("jobs", url=server.url) as queue:
            consumer = aio.Consumer(queue, handle, concurrency=1)
            await consumer.start()
            if is_busy:
                await queue.send("long")
                assert await asyncio.to_thread(began.wait, 30)
            await asyncio.sleep(0.3)  # it falls asleep
            with frozen(server), Stopwatch() as watch:
                await consumer.stop(timeout=TIMEOUT)
            return watch.running

    assert asyncio.run(main()) < TIMEOUT + SLACK


def test_server_that_comes_back_in_time_still_gets_the_outcomes(start_server: StartServer):
    server, began, ends = start_server(), threading.Event(), threading.Event()

    def handle(_: object) -> None:
        began.set()
        ends.wait(120)

    with Queue("jobs", url=server.url) as queue:
        consumer = Consumer(queue, handle, concurrency=1)
        consumer.start()
        queue.send("long")
        assert began.wait(120)
        with frozen(server):
            stopping = threading.Thread(target=lambda: consumer.stop(timeout=20))
            stopping.start()
            ends.set()
            time.sleep(1)
        stopping.join(120)
        assert eventually(lambda: queue.stats().acked == 1)
