"""An error in the middle of a bulk send says how much is stored."""

from __future__ import annotations

import asyncio
import re

import pytest
import redis

from delayq import NewRecord, Outgoing, Queue, Topic, aio
from delayq.errors import ServerOutOfMemory
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

COUNT = 10_000
BODY = "x" * 1000


def fill(client: redis.Redis) -> None:
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 3_000_000)


def stored(error: Exception) -> int:
    text = str(error)
    assert "nothing was stored" not in text
    found = re.search(r"([\d,]+) of 10,000 (?:messages|records) are stored", text)
    assert found is not None, text
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("named", [True, False])
def test_send_many_that_fills_the_memory_says_how_many_messages_are_stored(
    own_server: RedisServer, shards: int, named: bool
):
    messages = [Outgoing(BODY, id=f"m{number}" if named else None) for number in range(COUNT)]
    with own_server.client() as client, Queue("jobs", url=own_server.url, shards=shards) as queue:
        fill(client)
        with pytest.raises(ServerOutOfMemory) as refused:
            queue.send_many(messages)
        client.config_set("maxmemory", 0)
        assert 0 < stored(refused.value) == queue.stats().inside < COUNT


def test_async_send_many_says_it_too(own_server: RedisServer):
    async def send() -> tuple[Exception, int]:
        async with aio.Queue("jobs", url=own_server.url) as queue:
            with own_server.client() as client:
                fill(client)
                with pytest.raises(ServerOutOfMemory) as refused:
                    await queue.send_many([Outgoing(BODY) for _ in range(COUNT)])
                client.config_set("maxmemory", 0)
            return refused.value, (await queue.stats()).inside

    error, inside = asyncio.run(send())
    assert 0 < stored(error) == inside < COUNT


@pytest.mark.parametrize("delay", [0, 60])
def test_publish_many_that_fills_the_memory_says_how_many_records_are_stored(own_server: RedisServer, delay: float):
    with own_server.client() as client, Topic("orders", url=own_server.url) as topic:
        fill(client)
        with pytest.raises(ServerOutOfMemory) as refused:
            topic.publish_many([NewRecord(BODY, delay=delay) for _ in range(COUNT)])
        client.config_set("maxmemory", 0)
        found = client.zcard("delayq:{orders}:topic:pending") if delay else topic.length()
        assert 0 < stored(refused.value) == found < COUNT


def test_single_refused_send_says_that_it_stored_nothing(own_server: RedisServer):
    with own_server.client() as client, Queue("jobs", url=own_server.url) as queue:
        client.config_set("maxmemory", 1)
        with pytest.raises(ServerOutOfMemory, match="stored nothing: raise maxmemory"):
            queue.send("x")
        client.config_set("maxmemory", 0)
        assert queue.stats().inside == 0


def test_send_many_to_replicas_says_how_many_messages_are_stored(start_server: StartServer):
    server = start_server(port=True)
    start_server(config={"replicaof": f"127.0.0.1 {server.port}"})
    with server.client() as client, Queue("jobs", url=server.url) as queue:
        assert eventually(lambda: client.wait(1, 1000) == 1, seconds=60)
        fill(client)
        with pytest.raises(ServerOutOfMemory) as refused:
            queue.send_many([Outgoing(BODY) for _ in range(COUNT)], wait_replicas=1)
        client.config_set("maxmemory", 0)
        assert 0 < stored(refused.value) == queue.stats().inside < COUNT
