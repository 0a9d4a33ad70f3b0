"""Stale records are taken over, even if a shard fails."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import NewRecord, Record, Topic, TopicConsumer, aio
from delayq.errors import KeyOverwritten
from delayq.operations.topics import reclaim
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

MINUTE_MS = 60_000
SHARDS = 3
EACH = 4  # records per shard


@pytest.fixture
def topic(redis_server: RedisServer) -> Any:
    with Topic("orders", url=redis_server.url, shards=SHARDS) as topic:
        yield topic


def leave_behind(topic: Topic, client: redis.Redis) -> str:
    """Let a consumer that is gone hold records of all shards; those of the second shard were delivered too often.

    They cannot be buried, because another program has overwritten the key of the dead letters. Return that key.
    """
    keys = [scripts.keys for scripts in topic._context.shards]
    topic.publish_many([NewRecord(number) for number in range(SHARDS * EACH)])
    records = topic.group("billing").poll("dead", 100)
    assert [record.shard for record in records].count(1) == EACH
    for record in records:
        how: dict[str, Any] = {"idle": MINUTE_MS, "retrycount": 9 if record.shard == 1 else 1}
        client.xclaim(keys[record.shard].stream, "billing", "dead", 0, [record.id], justid=True, **how)
    client.set(keys[1].buried("billing"), "mine")
    return keys[1].buried("billing")


def test_records_taken_over_are_returned_even_if_another_shard_fails(topic: Topic, redis_client: redis.Redis):
    group = topic.group("billing", max_deliveries=5)
    broken = leave_behind(topic, redis_client)
    taken: list[Record] = []
    for _ in range(2 * SHARDS):  # it starts with another shard each time
        with contextlib.suppress(KeyOverwritten):
            taken += group.fetch_not_acked("me", 30)
    assert sorted(record.shard for record in taken) == [0] * EACH + [2] * EACH
    redis_client.delete(broken)
    assert group.fetch_not_acked("me", 30) == []
    assert len(group.dead()) == EACH


def consumed(topic: Topic, handle: Callable[[Record], Any], is_done: Callable[[], bool]) -> bool:
    consumer = TopicConsumer(topic.group("billing", max_deliveries=5), handle, ack_timeout=1)
    consumer.start()
    done = eventually(is_done)
    consumer.stop()
    return done


def consumed_async(topic: Topic, handle: Callable[[Record], Any], is_done: Callable[[], bool]) -> bool:
    async def live() -> bool:
        client: Any = topic._executor.client
        url = f"unix://{client.connection_pool.connection_kwargs['path']}"
        async with aio.Topic("orders", url=url, shards=SHARDS) as mine:
            consumer = aio.TopicConsumer(await mine.group("billing", max_deliveries=5), handle, ack_timeout=1)
            await consumer.start()
            done = await asyncio.to_thread(eventually, is_done)
            await consumer.stop()
            return done

    return asyncio.run(live())


@pytest.mark.parametrize("consume", [consumed, consumed_async])
def test_consumer_handles_records_it_took_over_before_a_shard_failed(
    topic: Topic, redis_client: redis.Redis, consume: Callable[..., bool]
):
    group = topic.group("billing")
    broken = leave_behind(topic, redis_client)
    seen: list[Record] = []
    mended = threading.Event()

    def handle(record: Record) -> None:
        seen.append(record)
        if len(seen) == (SHARDS - 1) * EACH:
            redis_client.delete(broken)
            mended.set()

    assert consume(topic, handle, lambda: mended.is_set() and len(group.dead()) == EACH)
    assert len(seen) == (SHARDS - 1) * EACH
    assert min(record.deliveries for record in seen) >= 2  # more if they were taken over again on a slow machine


LONG = 20_500  # more than the server scans in one call


@pytest.mark.full
def test_stale_records_are_found_page_by_page_in_a_long_list(any_server: RedisServer, any_client: redis.Redis):
    with Topic("orders", url=any_server.url) as topic:
        group = topic.group("billing")
        topic.publish_many([NewRecord(number) for number in range(LONG)])
        held: list[Record] = []
        while more := group.poll("dead", 10_000):
            held += more
        left = [held[number] for number in (0, 7_000, 7_001, LONG - 1)]
        key = topic._context.shards[0].keys.stream
        for record in left:
            any_client.xclaim(key, "billing", "dead", 0, [record.id], idle=MINUTE_MS, justid=True)
        places: dict[int, str] = {}
        found: list[list[int]] = []
        while not found or places:
            done = reclaim.Reclaimed()
            topic.execute(reclaim.reclaim_page, "billing", "me", 30, 2, None, places, done)
            found.append([record.payload for record in done.records])
        assert [page for page in found if page] == [[0], [7_000, 7_001], [LONG - 1]]
        for record in left:
            any_client.xclaim(key, "billing", "dead", 0, [record.id], idle=MINUTE_MS, justid=True)
        assert [record.payload for record in group.fetch_not_acked("you", 30)] == [0, 7_000, 7_001, LONG - 1]
        for record in left:
            any_client.xclaim(key, "billing", "dead", 0, [record.id], idle=MINUTE_MS, justid=True)
        seen: list[int] = []
        assert TopicConsumer(group, lambda record: seen.append(record.payload)).drain() == len(left)
        assert sorted(seen) == [record.payload for record in left]
