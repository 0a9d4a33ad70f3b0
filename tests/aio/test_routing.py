"""Schedule functions on an event loop, async and plain, and handlers that take too long."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import Outgoing
from delayq.aio import Consumer, Message, Queue
from delayq.errors import InvalidInput
from tests.aio.conftest import Run
from tests.aio.test_consumer import becomes
from tests.harness.servers import RedisServer

RUNS_OVER = "handler exceeded its time limit"


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


def test_handler_over_its_time_limit_is_cancelled_and_its_delivery_fails(run: Run, url: str):
    async def main() -> None:
        ended: list[str] = []

        async def stuck(message: Message) -> None:
            if message.payload == "quick":
                return
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(message.payload)

        async with Queue("jobs", url=url, max_retries=0) as queue:
            await queue.send("slow")
            await queue.send("quick")
            consumer = Consumer(queue, stuck, timeout=0.05)
            assert await consumer.drain() == 2
            assert ended == ["slow"]
            assert (consumer.overran, consumer.failed, (await queue.stats()).acked) == (1, 1, 1)
            (letter,) = await queue.dead.list()
            assert letter.error == "TimeoutError: the handler took longer than 0.05 s: cancelled"

    run(main())


def test_timeout_of_the_message_overrides_the_timeout_of_the_consumer(run: Run, url: str):
    async def main() -> None:
        may_end = asyncio.Event()
        async with Queue("jobs", url=url, max_retries=0) as queue:
            await queue.send("short", timeout=0.05)
            await queue.send("long", timeout=3600)
            await queue.send("plain")
            done: list[Any] = []

            async def handle(message: Message) -> None:
                await may_end.wait()
                done.append(message.payload)

            consumer = Consumer(queue, handle, timeout=0.1)
            await consumer.start()
            assert await becomes(lambda: consumer.failed == 2)
            may_end.set()
            await consumer.stop()
            assert (consumer.overran, done) == (2, ["long"])
            assert sorted(letter.error or "" for letter in await queue.dead.list()) == [
                "TimeoutError: the handler took longer than 0.05 s: cancelled",
                "TimeoutError: the handler took longer than 0.1 s: cancelled",
            ]

    run(main())


def test_plain_handler_over_its_time_limit_is_logged_and_continues(run: Run, url: str):
    async def main() -> None:
        may_end = threading.Event()
        async with Queue("jobs", url=url) as queue:
            await queue.send("slow")
            consumer = Consumer(queue, lambda _: may_end.wait(120), timeout=0.05)
            with capture_logs() as lines:
                await consumer.start()
                try:
                    assert await becomes(lambda: consumer.overran == 1)
                finally:
                    may_end.set()
                    await consumer.stop()
            assert [line["timeout"] for line in lines if line["event"] == RUNS_OVER] == [0.05]
            assert (consumer.failed, (await queue.stats()).acked) == (0, 1)

    run(main())


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon", True, 86_401])
def test_invalid_timeout_is_refused(timeout: Any):
    with pytest.raises(InvalidInput, match="timeout"):
        Consumer(Queue("jobs", url="redis://127.0.0.1:1"), print, timeout=timeout)


def test_async_schedule_functions_are_awaited_and_plain_ones_run_on_threads(run: Run, url: str):
    async def main() -> None:
        where: dict[str, Any] = {}
        async with Queue("jobs", url=url) as queue:

            @queue.cron("@yearly")
            async def on_the_loop(_: Message) -> None:
                await asyncio.sleep(0)
                where["on_the_loop"] = threading.current_thread() is threading.main_thread()

            @queue.cron("@yearly")
            def apart(_: Message) -> None:
                where["apart"] = threading.current_thread() is threading.main_thread()

            consumer = Consumer(queue)
            assert await consumer.drain() == 0
            assert [each.name for each in await queue.schedules.list()] == ["apart", "on_the_loop"]
            for name in ("on_the_loop", "apart"):
                await queue.schedules.run_now(name)
            assert await consumer.drain() == 2
            assert where == {"on_the_loop": True, "apart": False}

    run(main())


def test_plain_handler_beside_an_async_function_works_as_usual(run: Run, url: str):
    async def main() -> None:
        may_end = threading.Event()

        def handle(message: Message) -> bool:
            if message.payload == "raises":
                raise SystemExit(3)
            if message.payload == "stops":
                raise StopIteration
            if message.payload == "slow":
                may_end.wait(120)
            return bool(message.payload != "false")

        async with Queue("jobs", url=url, max_retries=0) as queue:

            @queue.cron("@yearly")
            async def tick(_: Message) -> None:
                """Make the consumer an async one."""

            await queue.send_many(Outgoing(each, id=each) for each in ("raises", "stops", "false", "slow"))
            consumer = Consumer(queue, handle, timeout=0.05)
            await consumer.start()
            assert await becomes(
                lambda: consumer.handled == 3 and consumer.overran > 0
            )  # other handlers may exceed it too
            assert (await queue.stats()).unack == 1
            may_end.set()
            assert await becomes(lambda: consumer.handled == 4)
            await consumer.stop()
            errors = {letter.id: letter.error for letter in await queue.dead.list()}
            assert errors["raises"] == "SystemExit: 3"
            assert errors["false"] == "the handler returned False"
            assert errors.keys() == {"raises", "stops", "false"}
            assert (await queue.stats()).acked == 1

    run(main())


def test_plain_handler_that_does_not_end_does_not_delay_the_stop(run: Run, url: str):
    async def main() -> None:
        may_end, started = threading.Event(), threading.Event()

        def handle(_: Message) -> None:
            started.set()
            may_end.wait(120)

        async with Queue("jobs", url=url) as queue:

            @queue.cron("@yearly")
            async def tick(_: Message) -> None:
                """Make the consumer an async one."""

            await queue.send("x", id="x")
            consumer = Consumer(queue, handle, shutdown_timeout=0)
            await consumer.start()
            assert await becomes(started.is_set)
            await consumer.stop()
            info = await queue.get("x")
            assert info is not None
            assert (info.state, info.attempts) == ("ready", 1)
            may_end.set()

    run(main())


def test_event_loop_runs_while_a_redrive_waits(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.send_many(Outgoing(n) for n in range(3))
            for message in await queue.receive():
                await message.reject()
            calls: list[int] = []
            redrive = asyncio.create_task(
                queue.dead.redrive(rate=0.001, progress=lambda each: calls.append(each.moved))
            )
            assert await becomes(lambda: calls == [0, 1])
            assert [message.attempt for message in await queue.receive()] == [2]
            redrive.cancel()
            await asyncio.wait({redrive})
            assert (redrive.cancelled(), (await queue.stats()).dead) == (True, 2)

    run(main())


def test_generator_as_a_schedule_function_is_refused(url: str):
    queue = Queue("jobs", url=url)

    def ticks(_: Message) -> Any:
        yield dt.timedelta(1)

    with pytest.raises(InvalidInput, match="generator"):
        queue.cron("@daily")(ticks)
