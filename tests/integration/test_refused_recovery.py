"""A lease that has ended and cannot be taken back: the consumer neither spins nor stays deaf."""

from __future__ import annotations

import time

import redis

from delayq import Consumer, Message, Queue
from tests.conftest import StartServer
from tests.waiting import eventually


def test_consumer_that_may_not_take_a_delivery_back_tries_about_once_a_second(start_server: StartServer) -> None:
    server = start_server()
    handled: list[Message] = []
    with Queue("work", url=server.url) as queue, server.client() as client:
        queue.send("lost", id="lost")
        queue.receive(lease=1)
        consumer = Consumer(queue, handled.append, concurrency=1)
        consumer.start()
        time.sleep(0.5)  # it is at rest, until the lease ends
        refuse(client, True)
        assert eventually(lambda: tries(client) > 0)
        before = tries(client)
        time.sleep(2)
        assert tries(client) - before < 20
        refuse(client, False)
        assert eventually(lambda: [message.id for message in handled] == ["lost"])
        consumer.stop()


def refuse(client: redis.Redis, yes: bool) -> None:
    """Let the server take no writes, for want of a replica."""
    client.config_set("min-replicas-to-write", int(yes))


def tries(client: redis.Redis) -> int:
    """How often the server has refused a write."""
    return int(client.info("errorstats").get("errorstat_NOREPLICAS", {}).get("count", 0))
