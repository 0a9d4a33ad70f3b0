"""Hooks of the async API: they are awaited, even when the run is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import Middleware
from delayq.aio import Consumer, Message, Queue, Topic, TopicConsumer
from delayq.errors import StartFailed
from delayq.types import MessageInfo
from tests.aio.conftest import Run
from tests.harness.servers import RedisServer


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


async def nothing(_: Message) -> None:
    """Do nothing."""


def test_handlers_can_use_what_start_opened_and_stop_closes_it(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            opened: dict[str, asyncio.Queue[Any]] = {}

            @queue.middleware.on_start
            async def open_pool(_: Consumer) -> None:
                await asyncio.sleep(0)
                opened["pool"] = asyncio.Queue()

            @queue.middleware.on_stop
            async def close_pool(_: Consumer) -> None:
                await asyncio.sleep(0)
                del opened["pool"]

            taken: list[Any] = []
            done = asyncio.Event()

            async def handle(message: Message) -> None:
                await opened["pool"].put(message.payload)
                taken.append(await opened["pool"].get())
                done.set()

            await queue.send("x")
            consumer = Consumer(queue, handle)
            await consumer.start()
            await done.wait()
            await consumer.stop()
            assert (taken, opened) == (["x"], {})

    run(main())


def test_message_that_its_handler_rejects_calls_the_async_dead_letter_hook(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue, Queue("alerts", url=url) as alerts:

            @queue.middleware.on_dead
            async def tell(info: MessageInfo) -> None:
                await alerts.send({"id": info.id, "reason": info.reason}, id=f"dead-{info.id}")

            async def handle(message: Message) -> None:
                await message.reject("by hand")

            await queue.send("x", id="a")
            assert await Consumer(queue, handle).drain() == 1
            (alert,) = await alerts.receive()
            assert (alert.id, alert.payload) == ("dead-a", {"id": "a", "reason": "by hand"})

    run(main())


def test_cancelled_run_awaits_its_stop_hook(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            called: list[str] = []
            started = asyncio.Event()
            queue.middleware.on_start(lambda _: started.set())

            @queue.middleware.on_stop
            async def stop(_: Consumer) -> None:
                await asyncio.sleep(0)
                called.append("stop")

            consumer = Consumer(queue, nothing)
            task = asyncio.create_task(consumer.run())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert called == ["stop"]

    run(main())


def test_cancelled_start_leaves_a_consumer_that_can_run(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            starts, waits = asyncio.Event(), asyncio.Event()
            called: list[str] = []

            @queue.middleware.on_start
            async def wait(_: Consumer) -> None:
                called.append("start")
                starts.set()
                await waits.wait()

            queue.middleware.on_stop(lambda _: called.append("stop"))
            await queue.send("x")
            consumer = Consumer(queue, nothing)
            task = asyncio.create_task(consumer.drain())
            await starts.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert called == ["start"]
            waits.set()
            assert await consumer.drain() == 1
            assert called == ["start", "start", "stop"]

    run(main())


def test_failing_async_hook_is_logged_and_the_message_is_dead(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:

            @queue.middleware.on_dead
            async def tell(_: MessageInfo) -> None:
                raise ValueError("boom")

            async def handle(message: Message) -> None:
                await message.reject("by hand")

            await queue.send("x", id="a")
            with capture_logs() as lines:
                assert await Consumer(queue, handle).drain() == 1
            assert (await queue.stats()).dead == 1
            assert [line["id"] for line in lines if line["event"] == "on_dead function failed"] == ["a"]

    run(main())


def test_topic_consumer_awaits_start_and_stop(run: Run, url: str):
    async def main() -> None:
        called: list[str] = []
        middleware = Middleware()

        @middleware.on_start
        async def start(_: TopicConsumer) -> None:
            await asyncio.sleep(0)
            called.append("start")

        @middleware.on_stop
        async def stop(_: TopicConsumer) -> None:
            await asyncio.sleep(0)
            called.append("stop")

        async with Topic("orders", url=url) as topic:
            group = await topic.group("log", start="0")
            await topic.publish("x")
            await TopicConsumer(group, lambda _: called.append("handled"), middleware=middleware).drain()
            assert called == ["start", "handled", "stop"]

            @middleware.on_start
            async def fail(_: TopicConsumer) -> None:
                raise ValueError("boom")

            with pytest.raises(StartFailed, match="boom"):
                await TopicConsumer(group, print, middleware=middleware).drain()

    run(main())
