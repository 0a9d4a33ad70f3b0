"""Records that nobody holds, because they were requeued or handed back, and the keeper that their lists name."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from delayq import Record, Reject, Topic, TopicConsumer
from delayq.operations.topics import settle
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import execute
from delayq.protocol.topic_commands import REQUEUED
from tests.harness.waiting import eventually
from tests.topics.conftest import Make
from tests.topics.test_lost_groups import beside

SOON = 120.0  # seconds: much less than the ack timeouts here


@pytest.mark.parametrize("shards", [1, 3])
def test_idle_consumer_takes_requeued_dead_letters_at_once(client: redis.Redis, shards: int):
    topic = Topic("orders", redis=client, shards=shards)
    seen: list[Any] = []

    def handle(record: Record) -> None:
        seen.append(record.payload)
        if len(seen) <= 3:
            raise Reject("unwanted")

    group = topic.group("billing", "0")
    consumer = TopicConsumer(group, handle, ack_timeout=600)
    consumer.start()
    for number in range(3):
        topic.publish(number)
    assert eventually(lambda: group.dead_length() == 3, seconds=20)
    letters = group.dead()
    assert group.requeue_dead(letters) == 3
    assert eventually(lambda: len(seen) == 6 and not group.unacked(), seconds=SOON)
    consumer.stop()


def test_idle_consumer_takes_records_of_one_that_stops_at_once(client: redis.Redis):
    topic = beside(client)
    group, other = topic.group("billing", "0"), beside(client).group("billing")
    begun, may_end, seen = threading.Event(), threading.Event(), list[Any]()

    def hang(_: Record) -> None:
        begun.set()
        may_end.wait(60)

    first = TopicConsumer(group, hang, ack_timeout=600, shutdown_timeout=0)
    first.start()
    topic.publish("a")
    assert begun.wait(120)
    second = TopicConsumer(other, lambda record: seen.append(record.payload), ack_timeout=600)
    second.start()
    first.stop()
    may_end.set()
    assert eventually(lambda: seen == ["a"], seconds=SOON)
    second.stop()


def test_keeper_is_no_consumer_of_its_group(make: Make, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing", "0")
    record_id = topic.publish("a").id
    (record,) = group.poll("a")
    group.bury(record, "a")
    group.requeue_dead(group.dead())
    assert [each.consumer for each in group.unacked()] == [REQUEUED]
    assert ([each.name for each in group.consumers()], topic.groups()[0].consumers) == (["a"], 1)
    assert "it was requeued, or handed back" in topic.why(record_id)
    (taken,) = group.fetch_not_acked("a")
    group.ack(taken)
    mine = beside(client)
    (scripts,) = mine.execute(TopicContext.opened)
    assert mine._executor.execute(execute(scripts.drop_idle_consumers("billing", 0, settle.NAMELESS))) == 1
    assert {each["name"] for each in client.xinfo_consumers("delayq:{orders}:topic", "billing")} == {b"a"}
