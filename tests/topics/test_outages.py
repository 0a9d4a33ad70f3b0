"""A consumer of a topic survives a restart of its server, and its log names the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import NewRecord, Record, Topic, TopicConsumer, aio, backoff
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

Life = Callable[[str, Callable[[Record], Any], Callable[[], bool], int], bool]


def lives(url: str, handle: Callable[[Record], Any], work: Callable[[], bool], shards: int) -> bool:
    """Run a consumer while `work` runs; return the result of `work`."""
    with Topic("orders", url=url, shards=shards) as topic:
        consumer = TopicConsumer(topic.group("billing", "0"), handle, ack_timeout=1, backoff=backoff.fixed(0.05))
        consumer.start()
        done = work()
        consumer.stop()
        return done


def lives_async(url: str, handle: Callable[[Record], Any], work: Callable[[], bool], shards: int) -> bool:
    """Run an async consumer in the same way."""

    async def awaited(record: Record) -> Any:
        return handle(record)

    async def live() -> bool:
        async with aio.Topic("orders", url=url, shards=shards) as topic:
            group = await topic.group("billing", "0")
            consumer = aio.TopicConsumer(group, awaited, ack_timeout=1, backoff=backoff.fixed(0.05))
            await consumer.start()
            done = await asyncio.to_thread(work)
            await consumer.stop()
            return done

    return asyncio.run(live())


each_life = pytest.mark.parametrize("life", [lives, lives_async])


@each_life
@pytest.mark.parametrize("shards", [1, 3])
def test_consumer_survives_a_server_restart(own_server: RedisServer, life: Life, shards: int):
    seen: list[int] = []

    def publish(first: int, count: int) -> None:
        with Topic("orders", url=own_server.url, shards=shards) as topic:
            topic.publish_many([NewRecord(first + number) for number in range(count)])
            topic.publish(first + count, delay=0.3)

    def work() -> bool:
        publish(0, 99)
        assert eventually(lambda: len(seen) > 10)
        own_server.kill()
        assert eventually(lambda: any("redis unavailable" in line["event"] for line in lines))
        own_server.start()
        publish(100, 99)
        with Topic("orders", url=own_server.url, shards=shards) as topic:
            group = topic.group("billing")
            return eventually(lambda: len(set(seen)) == 200 and not group.unacked() and not group.lag())

    def handle(record: Record) -> bool:
        seen.append(record.payload)
        return record.payload % 10 != 3 or record.deliveries > 1

    with capture_logs() as lines:
        assert life(own_server.url, handle, work, shards)
    assert sorted(set(seen)) == list(range(200))
    logged = [line for line in lines if line["event"].startswith("redis ")]
    assert {line["event"] for line in logged} == {"redis unavailable, retrying", "redis available again"}
    assert {(line["topic"], line["group"], "queue" in line) for line in logged} == {("orders", "billing", False)}
