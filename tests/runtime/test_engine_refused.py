"""An expired lease that cannot be taken back: the consumer neither spins nor stops listening."""

from __future__ import annotations

import time

import pytest
import redis

from delayq import Consumer, Message, Queue
from tests.conftest import StartServer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full


def test_consumer_that_cannot_take_a_delivery_back_tries_about_once_a_second(start_server: StartServer) -> None:
    server = start_server()
    handled: list[Message] = []
    with Queue("work", url=server.url) as queue, server.client() as client:
        queue.send("lost", id="lost")
        queue.receive(lease=3600)
        consumer = Consumer(queue, handled.append, concurrency=1)
        consumer.start()
        assert eventually(lambda: client.info("clients")["blocked_clients"] == 1)  # it is asleep
        with client.pipeline() as pipe:  # nobody can take the lease back between the two
            pipe.zadd("delayq:{work}:unack", {"lost": 1})
            pipe.config_set("min-replicas-to-write", 1)
            pipe.execute()
        assert eventually(lambda: tries(client) > 0)
        before, began = tries(client), time.monotonic()
        time.sleep(2)
        assert tries(client) - before < 10 * (time.monotonic() - began)
        client.config_set("min-replicas-to-write", 0)
        assert eventually(lambda: [message.id for message in handled] == ["lost"])
        consumer.stop()


def tries(client: redis.Redis) -> int:
    """How often the server has refused a write."""
    return int(client.info("errorstats").get("errorstat_NOREPLICAS", {}).get("count", 0))
