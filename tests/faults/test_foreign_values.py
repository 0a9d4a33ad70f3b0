"""Values overwritten by another program stop no consumer; messages are still handled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Consumer, Queue, Topic, TopicConsumer, doctor
from delayq.model.record import Record
from tests.harness.servers import RedisServer

P = "delayq:{jobs}:"

PLANTED: dict[str, Callable[[Any], object]] = {
    "a counter that is no number": lambda client: client.hset(P + "stats", "acked", "many"),
    "a counter that the claim takes": lambda client: client.hset(P + "stats", "delivered", "many"),
    "a due time of -inf": lambda client: client.zadd(P + "pending", {"a": "-inf"}),
    "a retry of -inf": lambda client: (client.zrem(P + "pending", "a"), client.zadd(P + "retry", {"a": "-inf"})),
    "attempts that cannot be read": lambda client: client.hset(P + "attempts", "a", "often"),
    "attempts that are no text": lambda client: client.hset(P + "attempts", "a", b"\xff\xfe"),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_consumer_handles_messages_despite_foreign_values(
    redis_server: RedisServer, redis_client: redis.Redis, plant: Callable[[Any], object]
):
    with Queue("jobs", url=redis_server.url) as queue:
        for name in ("a", "b"):
            queue.send(name, id=name)
        plant(redis_client)
        handled: list[str] = []
        assert Consumer(queue, lambda message: handled.append(message.id)).drain() == 2
        assert sorted(handled) == ["a", "b"]
        stats = queue.stats()
        assert (stats.inside, stats.unack) == (0, 0)
        doctor.examine(queue, repair=True)
        assert doctor.examine(queue).healthy


def test_lease_that_ended_at_minus_infinity_is_taken_back(redis_server: RedisServer, redis_client: redis.Redis):
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send("x", id="a")
        queue.receive()
        redis_client.zadd(P + "unack", {"a": "-inf"})
        handled: list[int] = []
        assert Consumer(queue, lambda message: handled.append(message.attempt)).drain() == 1
        assert handled == [2]


def test_topic_record_with_an_invalid_id_does_not_hold_up_others(redis_server: RedisServer, redis_client: redis.Redis):
    with Topic("news", url=redis_server.url) as topic:
        group = topic.group("readers", start="0")
        topic.publish("later", delay=0.001)
        (pending,) = [key for key in redis_client.keys("*") if redis_client.type(key) == b"zset"]
        redis_client.zadd(pending, {b"\xff\xfe": 1})
        handled: list[Any] = []

        def handle(record: Record) -> None:
            handled.append(record.payload)

        TopicConsumer(group, handle).drain()
        if not handled:  # it was not due yet
            TopicConsumer(group, handle).drain()
        assert handled == ["later"]
        assert redis_client.zcard(pending) == 0
