"""A consumer that runs in a program with signal handlers of its own does not take the signals away from it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
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
