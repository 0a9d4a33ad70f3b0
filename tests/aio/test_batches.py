"""Batches on an event loop: when they start, their tasks, and their end. The rest is in tests/contract."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import Outgoing, backoff
from delayq.aio import Consumer, Message, Queue
from tests.aio.conftest import Run
from tests.harness.servers import RedisServer

AN_HOUR = 3600


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


async def becomes(queue: Queue, seconds: float = 240, **counts: int) -> bool:
    """Wait until the queue's statistics match. Return False if they don't within `seconds`, which no test is about."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stats = await queue.stats()
        if all(getattr(stats, name) == count for name, count in counts.items()):
            return True
        await asyncio.sleep(0.005)
    return False


def test_batch_starts_when_it_is_full(run: Run, url: str):
    async def main() -> None:
        sizes: list[int] = []
        async with Queue("jobs", url=url) as queue:

            @queue.batch_handler(max_messages=3, max_wait=AN_HOUR)
            async def handle(messages: list[Message]) -> None:
                sizes.append(len(messages))

            consumer = Consumer(queue)
            await consumer.start()
            for n in range(3):
                assert await becomes(queue, unack=n)
                assert sizes == []
                await queue.send(n)
            assert await becomes(queue, acked=3)
            await consumer.stop()
            assert sizes == [3]

    run(main())


def test_incomplete_batch_starts_after_its_wait(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:

            @queue.batch_handler(max_wait=0.02)
            async def handle(_: list[Message]) -> None:
                """Do nothing."""

            consumer = Consumer(queue)
            await consumer.start()
            for n in range(3):
                await queue.send(n)
                assert await becomes(queue, acked=n + 1)
            await consumer.stop()

    run(main())


def test_batch_does_not_wait_while_a_suspect_stops_claims(run: Run, redis_server: RedisServer):
    async def main() -> None:
        seen: list[list[str]] = []
        async with Queue("jobs", url=redis_server.url) as queue:

            @queue.batch_handler(max_wait=AN_HOUR)
            async def handle(messages: list[Message]) -> None:
                seen.append([message.id for message in messages])

            await queue.send_many(Outgoing("x", id=id) for id in ("a", "b", "suspect"))
            with redis_server.client() as client:
                client.hset(queue._context.shards[0].keys.attempts, "suspect", "2.0.0.2")  # it lost its lease twice
            consumer = Consumer(queue)
            await consumer.start()
            assert await becomes(queue, acked=3)
            assert [sorted(batch) for batch in seen] == [["a", "b"], ["suspect"]]
            await queue.send("x", id="c")  # claimed by itself, since it could be the next suspect
            assert await becomes(queue, acked=4)
            await consumer.stop()

    run(main())


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_incomplete_batch_is_handed_back_at_shutdown(run: Run, url: str, kind: str):
    async def main() -> None:
        seen: list[Any] = []

        async def handle_async(messages: list[Message]) -> None:
            seen.extend(messages)

        def handle(messages: list[Message]) -> None:
            seen.extend(messages)

        async with Queue("jobs", url=url) as queue:
            function: Callable[..., Any] = handle_async if kind == "async" else handle
            queue.batch_handler(max_wait=AN_HOUR)(function)
            consumer = Consumer(queue)
            await consumer.start()
            await queue.send_many(Outgoing(n) for n in range(5))
            assert await becomes(queue, unack=5)
            await consumer.stop()
            stats = await queue.stats()
            assert (seen, stats.ready, stats.released, stats.unack, stats.missing) == ([], 5, 5, 0, 0)

    run(main())


def test_batch_that_outlasts_the_shutdown_timeout_is_cancelled_and_handed_back(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url, max_retries=0) as queue:
            began, cancelled = asyncio.Event(), asyncio.Event()

            @queue.batch_handler(max_messages=2, max_wait=3600)
            async def handle(_: list[Message]) -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()

            consumer = Consumer(queue, concurrency=1)
            await consumer.start()
            await queue.send_many(Outgoing(n) for n in range(2))
            await began.wait()
            await consumer.stop(timeout=0)
            assert cancelled.is_set()
            assert [info.attempts for info in await queue.peek("ready")] == [1, 1]

    run(main())


def test_batch_over_its_time_limit_is_cancelled_and_counted(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url, backoff=backoff.fixed(30)) as queue:

            @queue.batch_handler()
            async def handle(_: list[Message]) -> None:
                await asyncio.Event().wait()

            await queue.send_many(Outgoing(n) for n in range(3))
            consumer = Consumer(queue, timeout=0.05)
            with capture_logs():
                assert await consumer.drain() == 3
            assert consumer.overran == 3
            errors = {info.error for info in await queue.peek("retry")}
            assert errors == {"TimeoutError: the handler took longer than 0.05 s: cancelled"}

    run(main())


@pytest.mark.parametrize("is_batch_async", [True, False])
def test_batch_handler_and_schedule_function_can_be_async_and_plain(run: Run, url: str, is_batch_async: bool):
    async def main() -> None:
        seen: list[tuple[Any, bool]] = []
        here = threading.current_thread()

        def plain(subject: Any) -> None:
            seen.append((subject, threading.current_thread() is here))

        async def on_the_loop(subject: Any) -> None:
            plain(subject)

        async with Queue("jobs", url=url) as queue:
            queue.batch_handler(max_messages=5)(on_the_loop if is_batch_async else plain)
            queue.cron("@yearly", name="tick")(plain if is_batch_async else on_the_loop)
            await queue.send_many(Outgoing(n) for n in range(5))
            assert await Consumer(queue).drain() == 5
            await queue.schedules.run_now("tick")
            assert await Consumer(queue).drain() == 1
        (batch, was_here), (tick, tick_was_here) = seen
        assert (len(batch), isinstance(tick, Message)) == (5, True)
        assert (was_here, tick_was_here) == (is_batch_async, not is_batch_async)

    run(main())


def test_batches_run_at_the_same_time_up_to_the_concurrency(run: Run, url: str):
    async def main() -> None:
        running = most = 0
        both_here = asyncio.Event()

        async with Queue("jobs", url=url) as queue:

            @queue.batch_handler(max_messages=10)
            async def handle(_: list[Message]) -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                if running == 2:
                    both_here.set()
                await both_here.wait()
                running -= 1

            await queue.send_many(Outgoing(n) for n in range(100))
            assert await Consumer(queue, concurrency=2).drain() == 100
            assert most == 2

    run(main())
