"""Handlers that exceed their time limit are logged while they run; their result counts."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Consumer, Message, Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.runtime.time_limit import TimeLimit
from tests.harness.waiting import eventually

RUNS_OVER = "handler exceeded its time limit"
ENDED = "handler ended after its time limit"


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=redis_client) as queue:
        yield queue


def test_handler_over_its_time_limit_is_logged_while_it_runs(queue: Queue) -> None:
    may_end = threading.Event()
    queue.send("slow", id="slow")
    consumer = Consumer(queue, lambda _: may_end.wait(120), timeout=0.05)
    with capture_logs() as lines:
        consumer.start()
        try:
            assert eventually(lambda: consumer.overran == 1)
            logged = [line for line in lines if line["event"] == RUNS_OVER]
            assert [(line["id"], line["attempt"], line["timeout"]) for line in logged] == [("slow", 1, 0.05)]
            assert queue.stats().unack == 1
        finally:
            may_end.set()
            consumer.stop()
    assert consumer.overran == 1
    assert [line["id"] for line in lines if line["event"] == ENDED] == ["slow"]
    assert (queue.stats().acked, consumer.failed) == (1, 0)


def test_handler_within_its_time_limit_is_not_logged(queue: Queue) -> None:
    for n in range(20):
        queue.send(n)
    consumer = Consumer(queue, lambda _: None, timeout=3600)
    with capture_logs() as lines:
        assert consumer.drain() == 20
    assert consumer.overran == 0
    assert {line["event"] for line in lines} == {"consumer started", "consumer stopped"}


def test_check_of_a_handler_that_still_has_time_logs_nothing(queue: Queue) -> None:
    time_limit = TimeLimit(3600)
    queue.send("x")
    with time_limit.watching():  # which checks at least once
        assert Consumer(queue, time_limit.wrap(lambda _: None)).drain() == 1
    assert time_limit.count == 0


@pytest.mark.parametrize("consumers", [None, 3600], ids=["none", "longer"])
def test_timeout_of_the_message_overrides_a_longer_one_of_the_consumer(queue: Queue, consumers: float | None) -> None:
    may_end = threading.Event()
    queue.send_many([Outgoing("x", id="long", timeout=3600), Outgoing("x", id="short", timeout=0.05)])
    consumer = Consumer(queue, lambda _: may_end.wait(120), timeout=consumers, concurrency=2)
    with capture_logs() as lines:
        consumer.start()
        try:
            assert eventually(lambda: consumer.overran == 1)
        finally:
            may_end.set()
            consumer.stop()
    logged = [(line["event"], line["id"], line["timeout"]) for line in lines if "timeout" in line]
    assert logged == [(RUNS_OVER, "short", 0.05), (ENDED, "short", 0.05)]
    assert consumer.overran == 1


def test_timeout_of_the_message_overrides_a_shorter_one_of_the_consumer(queue: Queue) -> None:
    may_end = threading.Event()
    queue.send_many([Outgoing("x", id="own", timeout=3600), Outgoing("x", id="plain")])
    consumer = Consumer(queue, lambda _: may_end.wait(120), timeout=0.05, concurrency=2)
    with capture_logs() as lines:
        consumer.start()
        try:
            assert eventually(lambda: consumer.overran == 1)
            assert eventually(lambda: queue.stats().unack == 2)
        finally:
            may_end.set()
            consumer.stop()
    assert [line["id"] for line in lines if line["event"] == RUNS_OVER] == ["plain"]


def test_shorter_timeout_is_noticed_while_a_longer_one_is_awaited(queue: Queue) -> None:
    may_end, first = threading.Event(), threading.Event()
    queue.send("x", id="long", timeout=3600)

    def handler(_: Message) -> None:
        first.set()
        may_end.wait(120)

    consumer = Consumer(queue, handler, concurrency=2)
    consumer.start()
    try:
        assert first.wait(60)
        assert eventually(lambda: consumer._time_limit._wakes_at < math.inf)  # it waits for that one to end
        queue.send("x", id="short", timeout=0.05)
        assert eventually(lambda: consumer.overran == 1)
    finally:
        may_end.set()
        consumer.stop()


def test_batch_has_the_timeout_of_its_consumer(queue: Queue) -> None:
    queue.send("x", timeout=1)
    messages = queue.receive()
    assert (TimeLimit(5).of(messages[0]), TimeLimit(5).of([*messages]), TimeLimit(None).of([*messages])) == (1, 5, None)


def test_second_run_of_a_consumer_is_watched_like_the_first(queue: Queue) -> None:
    may_end = threading.Event()
    consumer = Consumer(queue, lambda _: may_end.wait(120))
    for count in (1, 2):
        may_end.clear()
        queue.send("x", timeout=3600 if count == 1 else 7200)
        queue.send("x", timeout=0.05)
        consumer.start()
        try:
            assert eventually(lambda count=count: consumer.overran == count)  # type: ignore[misc]
        finally:
            may_end.set()
            consumer.stop()


def test_each_delivery_has_its_own_time_limit(queue: Queue) -> None:
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
def test_invalid_timeout_is_refused(queue: Queue, timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        Consumer(queue, print, timeout=timeout)


def test_async_handler_over_its_time_limit_is_cancelled_and_raises() -> None:
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


def test_timeout_raised_by_an_async_handler_itself_is_not_counted() -> None:
    time_limit = TimeLimit(3600)

    async def impatient(message: object) -> object:
        if message is None:
            raise TimeoutError("no answer")
        return message

    assert asyncio.run(time_limit.wrap(impatient)(5)) == 5
    with pytest.raises(TimeoutError, match="no answer"):
        asyncio.run(time_limit.wrap(impatient)(None))
    assert time_limit.count == 0


def test_handlers_beyond_their_limit_are_counted_while_they_run(queue: Queue) -> None:
    time_limit, ends = TimeLimit(0.01), threading.Event()
    queue.send("x")
    (message,) = queue.receive(1)
    with time_limit.watching():
        thread = threading.Thread(target=time_limit.wrap(lambda _: ends.wait(120)), args=(message,))
        thread.start()
        assert eventually(lambda: time_limit.over(queue.name) == 1)
        assert time_limit.over("another") == 0
        ends.set()
        thread.join()
    assert (time_limit.over(queue.name), time_limit.count) == (0, 1)
