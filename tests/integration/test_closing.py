"""A queue or a topic that is closed while somebody waits on it: whoever goes on opens it anew, and leaves no socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest
import redis

from delayq import Consumer, Message, Queue, Topic, TopicConsumer, aio
from delayq.errors import ServerError
from delayq.runtime.receive_wait import ReceiveWait
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
    """Tells the ids of the connections that wait for something to come."""
    redis_client.ping()  # connects
    return lambda: {each["id"] for each in redis_client.client_list() if "b" in each["flags"]}


def test_receiver_leaves_no_connection(
    redis_server: RedisServer, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Message] = []
    waiting, wait = threading.Event(), ReceiveWait.wait

    def noted(waiter: ReceiveWait, seconds: float) -> None:
        waiting.set()
        wait(waiter, seconds)

    monkeypatch.setattr(ReceiveWait, "wait", noted)  # in the middle of a call, it would be told to call again
    with all_closed(seconds=0), Queue("jobs", url=redis_server.url) as queue:
        thread = threading.Thread(target=lambda: received.extend(queue.receive(wait=20)))
        thread.start()
        assert waiting.wait(120)
        assert eventually(lambda: bool(blocked()))
        before = blocked()
        queue.close()
        assert eventually(lambda: bool(blocked() - before))
        with Queue("jobs", url=redis_server.url) as other:
            other.send("x")
        thread.join()
    assert [message.payload for message in received] == ["x"]


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
