"""Hooks of the sync API: threads, processes, topics, and messages that a handler settles itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Middleware, Queue, Topic, TopicConsumer
from delayq.errors import InvalidInput, StartFailed
from delayq.types import MessageInfo
from tests.harness import pooled
from tests.harness.servers import RedisServer


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=redis_client) as queue:
        yield queue


def failing(_: object) -> None:
    raise ValueError("boom")


def test_start_hook_runs_before_start_returns_and_stop_hook_before_stop_does(queue: Queue) -> None:
    called: list[str] = []
    queue.middleware.on_start(lambda _: called.append("start"))
    queue.middleware.on_stop(lambda _: called.append("stop"))
    consumer = Consumer(queue, print)
    consumer.start()
    assert called == ["start"]
    consumer.stop()
    assert called == ["start", "stop"]


def test_failing_start_hook_is_raised_and_the_consumer_can_run_later(queue: Queue) -> None:
    works = threading.Event()

    def opened(_: object) -> None:
        if not works.is_set():
            raise ValueError("boom")

    queue.middleware.on_start(opened)
    queue.send("x")
    consumer = Consumer(queue, lambda _: None)
    with pytest.raises(StartFailed, match="boom"):
        consumer.start()
    assert not consumer.is_running
    works.set()
    assert consumer.drain() == 1


@pytest.mark.parametrize("how", ["reject", "nack"])
def test_message_that_its_handler_rejects_calls_the_dead_letter_hook(queue: Queue, how: str) -> None:
    infos: list[MessageInfo] = []
    queue.middleware.on_dead(infos.append)
    queue.send("x", id="a", max_retries=0)

    def handle(message: Message) -> None:
        message.reject("by hand") if how == "reject" else message.nack(error="by hand")

    assert Consumer(queue, handle).drain() == 1
    assert infos == [queue.get("a")]
    assert (infos[0].reason if how == "reject" else infos[0].error) == "by hand"


def test_message_cancelled_while_it_ran_does_not_call_the_dead_letter_hook(queue: Queue) -> None:
    infos: list[MessageInfo] = []
    queue.middleware.on_dead(infos.append)
    queue.send("x", id="a", max_retries=0)

    def handle(_: Message) -> None:
        assert queue.cancel("a") == "in_flight"
        raise ValueError("boom")

    assert Consumer(queue, handle).drain() == 1
    assert (infos, queue.get("a")) == ([], None)


def test_dead_letter_hook_of_the_last_message_runs_before_the_stop_hook(queue: Queue) -> None:
    called: list[str] = []
    queue.middleware.on_dead(lambda info: called.append(info.id))
    queue.middleware.on_stop(lambda _: called.append("stop"))
    queue.send("x", id="a")
    running, may_end = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        running.set()
        may_end.wait(120)
        message.reject("by hand")

    consumer = Consumer(queue, handle)
    consumer.start()
    assert running.wait(120)
    threading.Timer(0.05, may_end.set).start()
    consumer.stop()
    assert called == ["a", "stop"]


def test_hooks_of_a_process_pool_run_in_the_consumers_process(redis_server: RedisServer) -> None:
    called: list[Any] = []
    with Queue("jobs", url=redis_server.url) as queue:
        queue.middleware.on_start(lambda _: called.append(("start", os.getpid())))
        queue.middleware.on_dead(lambda info: called.append((info.reason, os.getpid())))
        queue.send("x", id="a")
        assert Consumer(queue, pooled.reject, pool="process", concurrency=1).drain() == 1
    assert called == [("start", os.getpid()), ("by hand", os.getpid())]


def test_topic_consumer_calls_start_and_stop(redis_client: redis.Redis) -> None:
    called: list[str] = []
    middleware = Middleware()
    middleware.on_start(lambda _: called.append("start"))
    middleware.on_stop(lambda _: called.append("stop"))
    with Topic("orders", redis=redis_client) as topic:
        group = topic.group("log", start="0")
        topic.publish("x")
        TopicConsumer(group, lambda _: called.append("handled"), middleware=middleware).drain()
        assert called == ["start", "handled", "stop"]
        middleware.on_start(failing)
        with pytest.raises(StartFailed, match="ValueError: boom"):
            TopicConsumer(group, print, middleware=middleware).drain()

        async def opened(_: object) -> None: ...

        middleware.on_start(opened)
        with pytest.raises(InvalidInput, match="is async"):
            TopicConsumer(group, print, middleware=middleware)


def test_failing_start_hook_with_several_queues_leaves_a_consumer_that_can_run(redis_client: redis.Redis) -> None:
    with Queue("a", redis=redis_client) as first, Queue("b", redis=redis_client) as second:
        first.middleware.on_start(failing)
        consumer = Consumer([first, second], print)
        for _ in range(2):
            with pytest.raises(StartFailed, match="boom"):
                consumer.drain()
