"""A consumer that runs in a program with signal handlers of its own does not take the signals away from it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import delayq
from delayq import aio
from tests.harness.servers import RedisServer

pytestmark = pytest.mark.same_on_all_servers

NUMBERS = [signal.SIGTERM, signal.SIGINT]
Run = Callable[[Callable[[], None]], int]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run_blocking(url: str, handle: Callable[[], None]) -> int:
    with delayq.Queue("jobs", url=url) as queue:
        queue.send("x")
        return delayq.Consumer(queue, lambda _: handle()).run()


def run_async(url: str, handle: Callable[[], None]) -> int:
    async def main() -> int:
        async def handler(_: aio.Message) -> None:
            handle()
            await asyncio.sleep(0.01)

        async with aio.Queue("jobs", url=url) as queue:
            await queue.send("x")
            return await asyncio.create_task(aio.Consumer(queue, handler).run())

    return asyncio.run(main())


def run_topic(url: str, handle: Callable[[], None]) -> int:
    with delayq.Topic("jobs", url=url) as topic:
        group = topic.group("g", start="0")
        topic.publish("x")
        return delayq.TopicConsumer(group, lambda _: handle()).run()


RUNS = [run_blocking, run_async, run_topic]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("run", RUNS)
def test_handler_of_the_program_is_called_too_and_restored(redis_server: RedisServer, run: Any, number: signal.Signals):
    seen: list[int] = []

    def own(number: int, _: object) -> None:
        seen.append(number)

    signal.signal(number, own)
    assert run(redis_server.url, lambda: os.kill(os.getpid(), number)) == 1
    assert seen == [number]
    assert signal.getsignal(number) is own


@pytest.mark.parametrize("run", RUNS)
def test_exit_by_the_programs_handler_waits_for_the_consumer(redis_server: RedisServer, run: Any):
    handled: list[str] = []

    def handle() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        handled.append("whole")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    with pytest.raises(SystemExit) as caught:
        run(redis_server.url, handle)
    assert caught.value.code == 7
    assert handled == ["whole"]
    with delayq.Queue("jobs", url=redis_server.url) as queue:
        assert queue.stats().acked == (run is not run_topic)


@pytest.mark.parametrize("run", RUNS)
def test_default_handlers_do_not_interrupt_the_consumer(redis_server: RedisServer, run: Any):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert run(redis_server.url, lambda: os.kill(os.getpid(), signal.SIGINT)) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handler_that_ends_work_waits_for_the_blocking_consumer(redis_server: RedisServer):
    """Such as one that cancels the jobs of Spark, or ends the process."""
    steps: list[str] = []

    def handle() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        steps.append("handled")

    signal.signal(signal.SIGTERM, lambda *_: steps.append("own"))
    assert run_blocking(redis_server.url, handle) == 1
    assert steps == ["handled", "own"]


def test_handler_that_tells_the_consumer_itself_does_not_end_it_at_once(redis_server: RedisServer):
    async def main() -> int:
        loop = asyncio.get_running_loop()
        consumers: list[aio.Consumer] = []

        async def handler(_: aio.Message) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)

        signal.signal(
            signal.SIGTERM, lambda *_: [loop.call_soon_threadsafe(each.take_signal) for each in consumers] and None
        )
        async with aio.Queue("jobs", url=redis_server.url) as queue:
            await queue.send("x")
            consumers.append(aio.Consumer(queue, handler))
            assert await consumers[0].run() == 1
            return consumers[0].abandoned + (await queue.stats()).inside

    assert asyncio.run(main()) == 0


def test_handler_of_an_ended_loop_that_somebody_has_put_back_passes_signals_on(redis_server: RedisServer):
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    stale: list[Any] = []

    def keep() -> None:
        stale.append(signal.getsignal(signal.SIGTERM))
        os.kill(os.getpid(), signal.SIGINT)

    assert run_async(redis_server.url, keep) == 1
    signal.signal(signal.SIGTERM, stale[0])
    assert run_async(redis_server.url, lambda: os.kill(os.getpid(), signal.SIGTERM)) == 1
    assert seen == [signal.SIGTERM]


def test_error_of_a_run_is_not_replaced_by_the_exit_of_a_handler(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    consume: Any = delayq.Consumer._consume

    def fail(*run: object) -> None:
        consume(*run)
        raise LookupError

    monkeypatch.setattr(delayq.Consumer, "_consume", fail)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    with pytest.raises(LookupError):
        run_blocking(redis_server.url, lambda: os.kill(os.getpid(), signal.SIGTERM))


def test_two_signals_at_once_end_an_async_consumer_at_once(redis_server: RedisServer):
    async def main() -> int:
        async def handler(_: aio.Message) -> None:
            for _each in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                signal.getsignal(signal.SIGTERM)  # the handler runs here, before the event loop continues
            await asyncio.sleep(60)

        async with aio.Queue("jobs", url=redis_server.url) as queue:
            await queue.send("x")
            consumer = aio.Consumer(queue, handler)
            await consumer.run()
            return consumer.abandoned

    assert asyncio.run(main()) == 1
