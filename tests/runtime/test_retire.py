"""A consumer that retires takes nothing new and lets its handlers take their time; a signal ends that patience."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import Consumer, Message, Queue, aio
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url, max_retries=0) as queue:
        yield queue


class Retiring:
    """A consumer that runs a handler, which ends when `go` is set."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self.has_ended = False
        self.call: Callable[[str], Any] = lambda _: None
        self.run: Callable[[], Any] = lambda: None
        self.thread = threading.Thread(target=lambda: self.run())  # noqa: PLW0108  # it is set later

    @contextlib.contextmanager
    def running(self, run: Callable[[], Any]) -> Iterator[Retiring]:
        self.run = run
        self.thread.start()
        try:
            yield self
        finally:
            self.go.set()
            self.thread.join()

    def hold(self) -> None:
        self.started.set()
        assert self.go.wait(240)


@pytest.fixture(params=["sync", "aio", "several queues", "aio, several queues"])
def run(request: pytest.FixtureRequest, redis_server: RedisServer) -> Any:
    """A consumer that runs, given its shutdown timeout."""
    names = ["jobs", "others"] if "several" in request.param else ["jobs"]

    @contextlib.contextmanager
    def sync(shutdown_timeout: float) -> Iterator[Retiring]:
        retiring = Retiring()
        queues = [Queue(name, url=redis_server.url) for name in names]

        def handle(_: Message) -> None:
            retiring.hold()

        consumer = Consumer(queues, handle, concurrency=1, shutdown_timeout=shutdown_timeout)
        retiring.call = lambda name: getattr(consumer, name)()

        def main() -> None:
            consumer.run()
            retiring.has_ended = True

        with retiring.running(main):
            yield retiring
        for each in queues:
            each.close()

    @contextlib.contextmanager
    def awaited(shutdown_timeout: float) -> Iterator[Retiring]:
        retiring, ready = Retiring(), threading.Event()

        async def handle(_: aio.Message) -> None:
            await asyncio.to_thread(retiring.hold)

        async def main() -> None:
            queues = [aio.Queue(name, url=redis_server.url) for name in names]
            consumer = aio.Consumer(queues, handle, concurrency=1, shutdown_timeout=shutdown_timeout)
            events = asyncio.get_running_loop()
            retiring.call = lambda name: events.call_soon_threadsafe(getattr(consumer, name))
            ready.set()
            await consumer.run()
            retiring.has_ended = True
            for each in queues:
                await each.close()

        with retiring.running(lambda: asyncio.run(main())):
            assert ready.wait(240)
            yield retiring

    return awaited if request.param.startswith("aio") else sync


def test_retiring_consumer_waits_for_its_handler_beyond_the_shutdown_timeout(queue: Queue, run: Any) -> None:
    queue.send("x", id="first")
    with run(0) as consumer:
        assert consumer.started.wait(240)
        consumer.call("retire")
        queue.send("x", id="second")
        time.sleep(0.3)  # longer than the shutdown timeout
        assert queue.stats().unack == 1
        consumer.go.set()
        assert eventually(lambda: queue.stats().acked == 1)
    assert (queue.stats().delivered, queue.stats().ready + queue.stats().pending) == (1, 1)


def test_signal_gives_a_retiring_consumer_the_shutdown_timeout(queue: Queue, run: Any) -> None:
    queue.send("x", id="first")
    with run(0.05) as consumer:
        assert consumer.started.wait(240)
        consumer.call("retire")
        time.sleep(0.2)
        assert queue.stats().unack == 1
        consumer.call("take_signal")
        assert eventually(lambda: queue.stats().unack == 0)
        assert queue.stats().acked == 0
    assert (queue.stats().ready, queue.stats().dead) == (1, 0)  # handed back, without using a retry


def test_second_signal_ends_a_retiring_consumer_at_once(queue: Queue, run: Any) -> None:
    queue.send("x", id="first")
    with run(3600) as consumer:
        assert consumer.started.wait(240)
        for name in ("retire", "take_signal", "take_signal"):
            consumer.call(name)
        assert eventually(lambda: consumer.has_ended)
    assert (queue.stats().acked, queue.stats().unack) == (0, 1)


def test_signal_that_comes_before_is_not_undone(queue: Queue, run: Any) -> None:
    queue.send("x", id="first")
    with run(0.05) as consumer:
        assert consumer.started.wait(240)
        consumer.call("take_signal")
        consumer.call("retire")
        assert eventually(lambda: queue.stats().unack == 0)
        assert queue.stats().acked == 0
