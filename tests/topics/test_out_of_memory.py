"""A server that has reached its maxmemory refuses new records, but consumers continue with the existing ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from delayq import NewRecord, Record, Reject, Topic, TopicConsumer, backoff
from delayq.errors import ServerOutOfMemory
from tests.harness.servers import RedisServer
from tests.topics.conftest import Now

MINUTE_MS = 60_000


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def topic(any_server: RedisServer, any_client: redis.Redis, now: Now) -> Iterator[Topic]:
    """Records 0 to 5 and a delayed 6. A consumer that is gone holds the first three, one delivered too often."""
    with Topic("orders", url=any_server.url, clock=now) as topic:
        group = topic.group("billing", "0")
        topic.publish_many([NewRecord(number) for number in range(6)])
        topic.publish(6, delay=1)
        key = topic._context.shards[0].keys.stream
        for record, times in zip(group.poll("dead", 3), (5, 1, 1), strict=True):
            any_client.xclaim(key, "billing", "dead", 0, [record.id], idle=MINUTE_MS, retrycount=times, justid=True)
        any_client.config_set("maxmemory", 1)
        yield topic
        any_client.config_set("maxmemory", 0)


def test_stale_records_are_taken_over_or_buried_while_memory_is_full(topic: Topic):
    group = topic.group("billing", max_deliveries=5)
    taken = group.fetch_not_acked("me", 30)
    assert [record.payload for record in taken] == [1, 2]
    assert [letter.record.payload for letter in group.dead()] == [0]
    assert group.ack(taken) == 2
    assert group.unacked() == []


def test_consumer_settles_records_in_every_way_while_memory_is_full(topic: Topic, now: Now):
    now.later(1)
    seen: list[tuple[int, int]] = []

    def handle(record: Record) -> None:
        seen.append((record.payload, record.deliveries))
        if record.payload == 3:
            raise Reject("unwanted")
        if record.payload == 4 and record.deliveries == 1:
            raise ValueError("not yet")
        if record.payload == 5:
            raise ValueError("never")

    group = topic.group("billing", max_deliveries=3)
    assert TopicConsumer(group, handle, backoff=backoff.fixed(0)).drain() == len(seen)
    assert sorted(seen) == [(1, 2), (2, 2), (3, 1), (4, 1), (4, 2), (5, 1), (5, 2), (5, 3), (6, 1)]
    assert {letter.record.payload: letter.errors for letter in group.dead()} == {
        0: [],
        3: ["Reject: unwanted"],
        5: ["ValueError: never"] * 3,
    }
    assert group.unacked() == []


def test_calls_that_need_memory_are_refused_until_there_is_some(topic: Topic, any_client: redis.Redis):
    for refused in (lambda: topic.publish(7), lambda: topic.publish(7, delay=1), lambda: topic.group("new")):
        with pytest.raises(ServerOutOfMemory, match="maxmemory"):
            refused()
    assert (topic.length(), [each.name for each in topic.groups()]) == (6, ["billing"])
    any_client.config_set("maxmemory", 0)
    assert topic.publish(7).created
    assert topic.group("new", "0").lag() == 7
