"""queues() lists the queues of a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis import asyncio as aio_redis

import delayq
from delayq import Queue, aio, errors
from tests.harness.servers import RedisServer


def test_queues_of_a_server_are_listed_by_name(any_server: RedisServer):
    options: Any
    for name, options in {"b": {"shards": 3}, "a": {}, "c": {"prefix": "other"}}.items():
        with Queue(name, url=any_server.url, **options) as queue:
            queue.send("payload")
    with Queue("never-used", url=any_server.url), delayq.Topic("topic", url=any_server.url) as topic:
        topic.publish("record")
    assert delayq.queues(url=any_server.url) == ["a", "b"]
    assert delayq.queues(url=any_server.url, prefix="other") == ["c"]
    assert asyncio.run(aio.queues(url=any_server.url)) == ["a", "b"]


@pytest.mark.same_on_all_servers
def test_given_client_stays_open(any_server: RedisServer):
    with Queue("emails", url=any_server.url) as queue:
        queue.pause()

    async def awaited() -> list[str]:
        async with aio_redis.Redis.from_url(any_server.url) as client:
            assert await aio.queues(redis=client) == ["emails"]
            return await aio.queues(redis=client)

    with redis.Redis.from_url(any_server.url, decode_responses=True) as client:
        assert delayq.queues(redis=client) == ["emails"]
        assert client.ping()
    assert asyncio.run(awaited()) == ["emails"]


def test_unreachable_server_and_bad_prefix_are_errors(tmp_path):
    with pytest.raises(errors.ServerUnreachable):
        delayq.queues(url=f"unix://{tmp_path}/nobody")
    with pytest.raises(errors.InvalidInput):
        delayq.queues(url="redis://localhost", prefix="")
