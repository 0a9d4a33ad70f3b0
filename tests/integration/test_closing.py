"""A queue or topic that is closed during a wait: a receive ends, a consumer continues. No socket is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import redis
import redis.asyncio as async_redis

from delayq import Consumer, Queue, Topic, TopicConsumer, aio
from delayq.errors import ServerError, ServerUnreachable
from delayq.operations import idle
from delayq.protocol.operation import Program
from delayq.types import QueueStats
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.sockets import all_closed
from tests.harness.topologies import Cluster
from tests.harness.waiting import eventually

Blocked: TypeAlias = Callable[[], set[str]]

each_kind = pytest.mark.parametrize("kind", ["queue", "topic"])


@pytest.fixture
def blocked(redis_client: redis.Redis) -> Blocked:
    """Returns the ids of the connections that block."""
    redis_client.ping()  # this connects
    return lambda: {each["id"] for each in redis_client.client_list() if "b" in each["flags"]}


@pytest.fixture(params=["own", "shared"])
def options(
    request: pytest.FixtureRequest,
    redis_server: RedisServer,
    blocked: Blocked,  # noqa: ARG001  # has its connection before
) -> Iterator[dict[str, Any]]:
    """How a queue is connected: by a client that it closes, or by one that stays open."""
    with all_closed(seconds=0):
        if request.param == "own":
            yield {"url": redis_server.url}
        else:
            with redis_server.client() as client:
                yield {"redis": client}


def test_receive_ends_at_once_when_its_queue_is_closed(
    options: dict[str, Any], blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.runtime.receiver.CLOSE_SECONDS", 60.0)
    monkeypatch.setattr("delayq.runtime.receive_wait.FALLBACK_MS", 600_000)  # it does not wake by itself
    ended: list[str] = []

    def receive() -> None:
        try:
            queue.receive(wait=600)
        except ServerUnreachable as error:
            ended.append(str(error))

    queue = Queue("jobs", **options)
    thread = threading.Thread(target=receive)
    thread.start()
    assert eventually(lambda: bool(blocked()))
    queue.close()
    thread.join(60)
    assert ended == ["queue jobs was closed during receive; the next call reconnects"]


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_async_receive_ends_at_once_when_its_queue_is_closed(
    redis_server: RedisServer, shared: bool, blocked: Blocked
) -> None:
    async def close_while_one_waits() -> None:
        async with async_redis.from_url(redis_server.url) as client:
            queue = aio.Queue("jobs", redis=client) if shared else aio.Queue("jobs", url=redis_server.url)
            receiving = asyncio.create_task(queue.receive(wait=600))
            assert await asyncio.to_thread(eventually, lambda: bool(blocked()))
            await queue.close()
            with pytest.raises(ServerUnreachable, match="queue jobs was closed during receive"):
                await asyncio.wait_for(receiving, 60)

    with all_closed(seconds=0):
        asyncio.run(close_while_one_waits())


def test_async_close_waits_for_the_request_of_a_receive(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_sleep, asks, answers = idle.plan_sleep, threading.Event(), threading.Event()

    def slow_plan(*args: Any) -> Program[idle.SleepPlan]:
        asks.set()
        yield answers.wait
        return (yield from plan_sleep(*args))

    async def close_while_one_asks() -> None:
        queue = aio.Queue("jobs", url=redis_server.url)
        receiving = asyncio.create_task(queue.receive(wait=600))
        assert await asyncio.to_thread(asks.wait, 60)
        closing = asyncio.create_task(queue.close())
        while not queue._receiver._closings:  # noqa: ASYNC110  # nobody is told that a close has begun
            await asyncio.sleep(0)
        answers.set()
        await closing
        with pytest.raises(ServerUnreachable, match="queue jobs was closed during receive"):
            await asyncio.wait_for(receiving, 60)

    monkeypatch.setattr(idle, "plan_sleep", slow_plan)
    monkeypatch.setattr("delayq.runtime.receiver_async.CLOSE_SECONDS", 60.0)
    with all_closed(seconds=0):
        asyncio.run(close_while_one_asks())


@each_kind
def test_consumer_leaves_no_connection(kind: str, redis_server: RedisServer, blocked: Blocked) -> None:
    with (
        all_closed(seconds=0),
        Queue("jobs", url=redis_server.url) as queue,
        Topic("events", url=redis_server.url) as topic,
    ):
        of_queue = kind == "queue"
        consumer = Consumer(queue, print) if of_queue else TopicConsumer(topic.group("all"), print)
        consumer.start()
        assert eventually(lambda: bool(blocked()))
        before = blocked()
        (queue if of_queue else topic).close()
        assert eventually(lambda: bool(blocked() - before))
        consumer.stop()


@each_kind
def test_async_consumer_leaves_no_connection(kind: str, redis_server: RedisServer, blocked: Blocked) -> None:
    async def serve() -> None:
        async with aio.Queue("jobs", url=redis_server.url) as queue, aio.Topic("events", url=redis_server.url) as topic:
            of_queue = kind == "queue"
            consumer = aio.Consumer(queue, print) if of_queue else aio.TopicConsumer(await topic.group("all"), print)
            await consumer.start()
            assert await asyncio.to_thread(eventually, lambda: bool(blocked()))
            before = blocked()
            await (queue if of_queue else topic).close()
            assert await asyncio.to_thread(eventually, lambda: bool(blocked() - before))
            await consumer.stop()

    with all_closed(seconds=0):
        asyncio.run(serve())


@pytest.fixture(params=["server", pytest.param("cluster", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest, redis_server: RedisServer, start_server: StartServer) -> str:
    return redis_server.url if request.param == "server" else Cluster(start_server, masters=1).url


@pytest.mark.parametrize("known", [True, False], ids=["connected", "connecting"])
def test_async_call_leaves_no_connection_whenever_its_queue_is_closed(known: bool, url: str) -> None:
    async def call_and_close(turns: int) -> None:
        async with aio.Queue("jobs", url=url) as queue:
            if known:
                await queue.stats()
            calls = [asyncio.create_task(queue.stats()) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await queue.close()
            late = asyncio.create_task(queue.stats())
            for result in await asyncio.gather(*calls, late, return_exceptions=True):
                assert isinstance(result, QueueStats | ServerError), repr(result)

    for turns in range(0, 60, 3):
        with all_closed(seconds=0):
            asyncio.run(call_and_close(turns))
