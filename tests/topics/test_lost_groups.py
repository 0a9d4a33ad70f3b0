"""A consumer goes on after its group, or the whole stream, is gone, unless somebody has destroyed the group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import NewRecord, Record, Reject, Topic, TopicConsumer, aio, backoff
from delayq.errors import UnknownGroup
from delayq.model import outcome as oc
from delayq.operations.topics import group_admin, group_read, settle
from delayq.protocol.topic_keys import TopicKeys
from tests.harness.waiting import eventually
from tests.topics.conftest import Awaited, Make
from tests.topics.test_consuming import Consume, consume, publish, stream

__all__ = ["consume"]  # a fixture

Lose = Callable[[redis.Redis], object]
LOSSES: dict[str, Lose] = {
    "flushed": lambda client: client.flushall(),
    "stream evicted": lambda client: client.delete(stream()),
    "group destroyed by another program": lambda client: client.xgroup_destroy(stream(), "billing"),
}
each_loss = pytest.mark.parametrize("lose", list(LOSSES.values()), ids=list(LOSSES))


def beside(client: redis.Redis) -> Topic:
    """The same topic, as another program uses it."""
    return Topic("orders", redis=client, shards=None)


def losses(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"].startswith("lost group")]


@each_loss
def test_records_published_after_a_loss_are_handled(make: Make, consume: Consume, client: redis.Redis, lose: Lose):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 2)
    seen: list[Any] = []

    def handle(record: Record) -> None:
        seen.append(record.payload)
        if record.payload == 1:
            lose(client)
            beside(client).publish_many([NewRecord("a"), NewRecord("b")])

    consumer = consume(group, handle, concurrency=1)
    with capture_logs() as lines:
        assert consumer.run(max_records=4) == 4
    assert seen == [0, 1, "a", "b"]
    assert [(line["log_level"], line["group"]) for line in losses(lines)] == [("error", "billing")]
    assert (consumer.recreated, group.unacked(), group.lag()) == (1, [], 0)


@each_loss
def test_idle_consumer_notices_a_loss(client: redis.Redis, lose: Lose):
    topic, seen = beside(client), list[Any]()
    publish(topic, 1)
    consumer = TopicConsumer(topic.group("billing", "0"), lambda record: seen.append(record.payload))
    consumer.start()
    assert eventually(lambda: seen == [0], seconds=20)
    lose(client)
    beside(client).publish("a")
    assert eventually(lambda: seen == [0, "a"], seconds=20)
    consumer.stop()


def test_own_ids_that_begin_again_are_read_from_the_first(make: Make, consume: Consume, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing")
    topic.publish_many([NewRecord(number, id=f"{number}-0") for number in (1, 2, 3)])
    seen: list[Any] = []

    def handle(record: Record) -> None:
        seen.append(record.payload)
        if seen == [1, 2, 3]:
            client.flushall()
            beside(client).publish_many([NewRecord(number * 10, id=f"{number}-0") for number in (1, 2, 3, 4)])

    assert consume(group, handle, concurrency=1).run(max_records=7) == 7
    assert seen == [1, 2, 3, 10, 20, 30, 40]


ENDS: dict[str, Callable[[], object]] = {
    "acked": lambda: None,
    "failed": lambda: fail(ValueError("broken")),
    "rejected": lambda: fail(Reject("unwanted")),
}


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("end", list(ENDS.values()), ids=list(ENDS))
@pytest.mark.parametrize("lose", [LOSSES["flushed"], LOSSES["stream evicted"]], ids=["flushed", "stream evicted"])
def test_outcome_of_a_record_of_a_lost_topic_does_not_settle_a_later_one_with_its_id(
    make: Make, client: redis.Redis, lose: Lose, end: Callable[[], object]
):
    group: Any = make(shards=1).group("billing")
    beside(client).publish_many([NewRecord(number, id=f"{number}-0") for number in (1, 2, 3)])
    seen: list[Any] = []
    is_handed_out = threading.Event()

    def begin(record: Record) -> None:
        seen.append((record.payload, record.deliveries))
        if record.payload == 3:
            lose(client)
            beside(client).publish_many([NewRecord(number * 10, id=f"{number}-0") for number in (1, 2, 3, 4)])
        elif record.payload == 40:
            is_handed_out.set()

    def handle(record: Record) -> None:
        begin(record)
        if record.payload == 3:
            assert is_handed_out.wait(120)
            end()

    async def handle_async(record: Record) -> None:
        begin(record)
        if record.payload == 3:
            assert await asyncio.to_thread(is_handed_out.wait, 20)
            end()

    options: Any = {"concurrency": 2, "backoff": backoff.fixed(0)}
    if isinstance(group, Awaited):
        consumer: Any = Awaited(aio.TopicConsumer(group.target, handle_async, **options), group.runner)
    else:
        consumer = TopicConsumer(group, handle, **options)
    consumer.drain()
    assert sorted(seen) == [(number, 1) for number in (1, 2, 3, 10, 20, 30, 40)]
    assert (group.unacked(), group.lag(), group.dead()) == ([], 0, [])


def recreate(topic: Topic) -> None:
    topic.execute(group_admin.recreate, "billing", {0: "1-0"}, 30.0)


@pytest.mark.parametrize("make_again", [recreate, lambda topic: topic.group("billing", "0")], ids=["lost", "made"])
def test_record_of_a_lost_topic_cannot_be_mistaken_for_a_later_one_of_the_same_consumer(
    client: redis.Redis, make_again: Callable[[Topic], object]
):
    topic = beside(client)
    group = topic.group("billing")
    topic.publish_many([NewRecord("old", id="1-0")])
    (old,) = group.poll("b")
    client.delete(stream())
    topic.publish_many([NewRecord("new", id="1-0")])
    make_again(topic)
    (new,) = group.poll("b")
    me = ("billing", "b")
    outcomes: list[oc.Outcome] = [oc.DONE, oc.Failed(error="broken"), oc.Dead("unwanted")]
    assert topic.execute(settle.settle, *me, [(old, each) for each in outcomes]) == [False] * 3
    assert topic.execute(settle.redeliver, *me, [old], True) == ([], [], [])
    assert topic.execute(group_read.renew, *me, [old])[:2] == ([], [old])
    topic.execute(settle.hand_back, *me, "keeper", [(old, True)])
    assert (group.ack(old), group.bury(old, "b")) == (0, False)
    assert [(each.consumer, each.deliveries) for each in group.unacked()] == [("b", 1)]
    assert (new.payload, group.dead(), group.ack([old, new]), group.unacked()) == ("new", [], 1, [])


def test_dead_letter_of_a_lost_topic_is_requeued_itself_and_not_a_later_record_with_its_id(client: redis.Redis):
    topic = beside(client)
    group = topic.group("billing")
    topic.publish_many([NewRecord("old", id="1-0")])
    (old,) = group.poll("b")
    group.bury(old, "b")
    client.delete(stream())
    topic.publish_many([NewRecord("new", id="1-0")])
    topic.execute(group_admin.recreate, "billing", {}, 30.0)
    group.ack(group.poll("b"))
    assert group.requeue_dead(group.dead()) == 1
    assert [record.payload for record in group.poll("b")] == ["old"]


def test_what_a_consumer_holds_is_not_lost_with_the_group(make: Make, consume: Consume, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing", max_deliveries=3)
    publish(topic, 20)
    seen: list[Any] = []

    def handle(record: Record) -> None:
        seen.append(record.payload)
        if record.payload == 3 and seen.count(3) == 1:
            client.xgroup_destroy(stream(), "billing")
            raise ValueError("broken")
        if record.payload == 5:
            raise Reject("unwanted")

    assert consume(group, handle, concurrency=2).run(max_records=21) == 21
    assert sorted(seen) == sorted([*range(20), 3])
    assert ([each.record.payload for each in group.dead()], group.unacked(), group.lag()) == ([5], [], 0)


def test_what_other_consumers_hold_is_brought_back(client: redis.Redis):
    topic = beside(client)
    group = topic.group("billing")
    publish(topic, 5)
    failed, buried, held, ended, acked = group.poll("b")
    client.xgroup_destroy(stream(), "billing")
    context = "billing", {0: acked.id}, 30.0
    (made,) = topic.execute(group_admin.recreate, *context)
    assert (made.after, topic.execute(group_admin.recreate, *context)) == (acked.id, [])
    outcomes: list[tuple[Record, oc.Outcome]] = [
        (failed, oc.Failed(error="broken")),
        (buried, oc.Dead("unwanted")),
        (acked, oc.DONE),
    ]
    assert topic.execute(settle.settle, "billing", "b", outcomes) == [True] * 3
    assert topic.execute(group_read.renew, "billing", "b", [held])[:2] == ([held], [])
    topic.execute(settle.hand_back, "billing", "b", "keeper", [(ended, True)])
    found = [(each.id, each.consumer) for each in group.unacked()]
    assert found == [(failed.id, "b"), (held.id, "b"), (ended.id, "keeper")]
    assert ([each.record.payload for each in group.dead()], group.poll("a")) == ([1], [])


def test_record_that_another_consumer_has_is_not_brought_back(client: redis.Redis):
    topic = beside(client)
    group = topic.group("billing")
    publish(topic, 1)
    (record,) = group.poll("b")
    client.xgroup_destroy(stream(), "billing")
    topic.execute(group_admin.recreate, "billing", {}, 30.0)
    assert [each.id for each in group.poll("a")] == [record.id]
    assert topic.execute(group_read.renew, "billing", "b", [record])[:2] == ([], [record])


def test_without_a_known_record_a_group_begins_at_the_first_and_says_how_many(client: redis.Redis):
    topic = beside(client)
    topic.group("billing")
    publish(topic, 3)
    first, second, _ = topic.range()
    topic.delete(second)
    client.xgroup_destroy(stream(), "billing")
    (made,) = topic.execute(group_admin.recreate, "billing", {0: second.id}, 30.0)
    assert (made.after, made.records) == ("0", 2)
    assert topic.group("billing").poll("a")[0].id == first.id


def test_destroyed_group_stays_destroyed_whatever_is_lost_later(client: redis.Redis):
    topic = beside(client)
    group = topic.group("billing")
    publish(topic, 1)
    client.delete(stream())
    assert not group.destroy()
    with pytest.raises(UnknownGroup, match="which was destroyed"):
        topic.execute(group_admin.recreate, "billing", {}, 30.0)
    assert not client.exists(stream())
    topic.group("billing")
    client.delete(stream())
    assert topic.execute(group_admin.recreate, "billing", {}, 30.0)


def test_lost_topic_keeps_its_number_of_shards(client: redis.Redis):
    with Topic("orders", redis=client, shards=3) as topic:
        topic.group("billing")
    with beside(client) as topic:
        topic.group("billing")
        client.flushall()
        assert len(topic.execute(group_admin.recreate, "billing", {}, 30.0)) == 3
    with beside(client) as topic:
        assert len(topic.execute(lambda context: context.opened())) == 3
    assert client.exists(*(TopicKeys.of_topic("delayq", "orders", shard).stream for shard in range(3))) == 3
