"""Handlers that run over their time are told of while they run; they end as they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Consumer, Message, Queue
from delayq.errors import InvalidInput
from delayq.runtime.time_limit import TimeLimit
from tests.harness.waiting import eventually

RUNS_OVER = "handler runs for longer than its time: it cannot be ended, and keeps its place"
ENDED = "handler ended after its time"


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=redis_client) as queue:
        yield queue


def test_handler_that_runs_over_its_time_is_told_of_while_it_runs(queue: Queue) -> None:
    may_end = threading.Event()
    queue.send("slow", id="slow")
    consumer = Consumer(queue, lambda _: may_end.wait(120), timeout=0.05)
    with capture_logs() as lines:
        consumer.start()
        try:
            assert eventually(lambda: consumer.overran == 1)
            told = [line for line in lines if line["event"] == RUNS_OVER]
            assert [(line["id"], line["attempt"], line["timeout"]) for line in told] == [("slow", 1, 0.05)]
            assert queue.stats().unack == 1
        finally:
            may_end.set()
            consumer.stop()
    assert consumer.overran == 1
    assert [line["id"] for line in lines if line["event"] == ENDED] == ["slow"]
    assert (queue.stats().acked, consumer.failed) == (1, 0)


def test_handler_within_its_time_is_not_told_of(queue: Queue) -> None:
    for n in range(20):
        queue.send(n)
    consumer = Consumer(queue, lambda _: None, timeout=3600)
    with capture_logs() as lines:
        assert consumer.drain() == 20
    assert consumer.overran == 0
    assert {line["event"] for line in lines} == {"consumer started", "consumer stopped"}


def test_look_at_a_handler_that_still_has_time_tells_nothing(queue: Queue) -> None:
    time_limit = TimeLimit(3600)

    def handler(_: Message) -> None:
        with time_limit.watching():  # which looks once, at least
            pass

    queue.send("x")
    assert Consumer(queue, time_limit.wrap(handler)).drain() == 1
    assert time_limit.count == 0


def test_each_delivery_has_the_time_to_itself(queue: Queue) -> None:
    may_end = threading.Event()
    for name in ("first", "second"):
        queue.send(name, id=name)
    consumer = Consumer(queue, lambda _: may_end.wait(120), timeout=0.05, concurrency=2)
    with capture_logs() as lines:
        consumer.start()
        try:
            assert eventually(lambda: consumer.overran == 2)
        finally:
            may_end.set()
            consumer.stop()
    for event in (RUNS_OVER, ENDED):
        assert sorted(line["id"] for line in lines if line["event"] == event) == ["first", "second"]


def test_no_thread_is_left_behind(queue: Queue) -> None:
    seen: list[list[str]] = []

    def look(_: Message) -> None:
        seen.append([thread.name for thread in threading.enumerate() if thread.name == "delayq-time-limit"])

    queue.send("x")
    Consumer(queue, look, timeout=60).drain()
    queue.send("x")
    Consumer(queue, look).drain()
    assert seen == [["delayq-time-limit"], []]
    assert "delayq-time-limit" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon", True, 86_401])
def test_time_that_is_none_is_refused(queue: Queue, timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        Consumer(queue, print, timeout=timeout)


def test_async_handler_over_its_time_is_cancelled_and_raises() -> None:
    seen: list[str] = []
    time_limit = TimeLimit(0.01)

    async def stuck(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    with pytest.raises(TimeoutError, match=r"the handler took longer than 0\.01 s: cancelled"):
        asyncio.run(time_limit.wrap(stuck)(object()))
    assert (seen, time_limit.count) == (["cancelled"], 1)


def test_timeout_of_an_async_handler_s_own_is_not_counted() -> None:
    time_limit = TimeLimit(3600)

    async def impatient(message: object) -> object:
        if message is None:
            raise TimeoutError("no answer")
        return message

    assert asyncio.run(time_limit.wrap(impatient)(5)) == 5
    with pytest.raises(TimeoutError, match="no answer"):
        asyncio.run(time_limit.wrap(impatient)(None))
    assert time_limit.count == 0
