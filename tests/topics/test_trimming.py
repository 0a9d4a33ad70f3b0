from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import InvalidInput, NewRecord, Record, Topic
from delayq.model.outcome import Failed
from delayq.model.positions import order
from delayq.operations.topics import group_read, settle
from delayq.protocol.topic_keys import TopicKeys
from tests.topics.conftest import Make


@pytest.fixture
def topic(make: Make) -> Topic:
    return make(shards=1)


def publish(topic: Topic, *numbers: int) -> None:
    topic.publish_many([NewRecord(number, id=f"{number}-0") for number in numbers])


def left(topic: Topic) -> list[Any]:
    return [record.payload for record in topic.range(count=100_000)]


def test_trim_keeps_a_given_length(topic: Topic):
    publish(topic, *range(1, 11))
    assert topic.trim(max_length=4, approximate=False) == 6
    assert left(topic) == [7, 8, 9, 10]
    assert topic.trim(max_length=4, approximate=False) == 0
    assert topic.trim(max_length=0, approximate=False) == 4


def test_single_records_can_be_deleted(topic: Topic):
    group = topic.group("billing", start="0")
    topic.publish_many([NewRecord(number) for number in range(5)])
    records = sorted(topic.range(), key=lambda record: record.payload)
    assert len(group.poll("a")) == 5
    assert topic.delete(records[1:3]) == 2
    assert topic.delete(records[1]) == 0
    assert topic.delete([]) == 0
    assert sorted(record.payload for record in topic.range()) == [0, 3, 4]
    assert group.clear_ghosts() == 2
    with pytest.raises(InvalidInput, match="is not an id of a record"):
        topic.delete("five")
    assert topic.length() == 3


@pytest.mark.parametrize("least", ["7-0", "6-1", "7", dt.datetime.fromtimestamp(0.007, dt.UTC)], ids=str)
def test_trim_deletes_records_before_an_id(topic: Topic, least: Any):
    publish(topic, *range(1, 11))
    assert topic.trim(min_id=least, approximate=False) == 6
    assert left(topic) == [7, 8, 9, 10]


def test_approximate_trim_drops_whole_nodes_only(topic: Topic):
    topic.publish_many([NewRecord(number) for number in range(1_000)])
    dropped = topic.trim(max_length=150)
    assert 0 < dropped <= 850
    assert topic.length() == 1_000 - dropped


@pytest.mark.same_on_all_clients
def test_long_topic_is_trimmed_in_bounded_steps(topic: Topic):
    topic.publish_many([NewRecord(number) for number in range(25_000)])
    assert topic.trim(max_length=3, approximate=False) == 24_997
    assert left(topic) == [24_997, 24_998, 24_999]


def test_trim_arguments_are_checked(topic: Topic, subtests: pytest.Subtests):
    publish(topic, 1)
    lone: list[dict[str, Any]] = [{"max_length": -1}, {"min_id": "x"}, {"min_id": "-"}, {"min_id": "(5-0"}]
    for options in [{}, {"max_length": 5, "min_id": "5-0"}, *lone]:
        with subtests.test(options=options):
            with pytest.raises(InvalidInput):
                topic.trim(**options)
            assert left(topic) == [1]


def test_trim_acked_drops_what_every_group_acked_and_names_the_slowest_group(topic: Topic):
    fast, slow = topic.group("fast", "0"), topic.group("slow", "0")
    publish(topic, *range(1, 11))
    fast.ack(fast.poll("a", 10))
    slow.ack(slow.poll("a", 4))
    assert topic.trim_acked() == (4, "slow", "4-1")
    assert left(topic) == [5, 6, 7, 8, 9, 10]
    slow.ack(slow.poll("a", 10))
    assert topic.trim_acked().dropped == 6
    assert left(topic) == []


def test_trim_acked_names_the_slowest_group_of_any_shard(make: Make):
    topic = make(shards=3)
    fast, slow = topic.group("fast", "0"), topic.group("slow", "0")
    topic.publish_many([NewRecord(number, key=str(number)) for number in range(20)])
    for shard in range(3):
        fast.ack(fast.poll("a", 100))
        records = slow.poll("a", 100)
        slow.ack([record for record in records if record.shard != shard])
        oldest = min((each.id for each in slow.unacked(count=100)), key=order)
        assert topic.trim_acked()[1:] == ("slow", oldest)
        slow.ack(records)
        topic.publish_many([NewRecord(number, key=str(number)) for number in range(20)])


def test_trim_acked_keeps_what_is_unacked_and_all_behind_it(topic: Topic):
    group = topic.group("only", "0")
    publish(topic, *range(1, 8))
    records = group.poll("a", 7)
    group.ack([record for record in records if record.payload != 3])
    assert topic.trim_acked() == (2, "only", "3-0")
    assert left(topic) == [3, 4, 5, 6, 7]
    assert group.clear_ghosts() == 0


def test_trim_acked_drops_records_that_became_dead_letters(topic: Topic):
    group = topic.group("only", "0")
    publish(topic, 1)
    group.bury(group.poll("a")[0], "a")
    assert (topic.trim_acked().dropped, left(topic)) == (1, [])
    assert group.requeue_dead(group.dead()) == 1
    assert [record.payload for record in group.poll("a")] == [1]


def test_trim_acked_without_a_group_keeps_everything(topic: Topic):
    assert topic.trim_acked() == (0, None, None)
    publish(topic, 1, 2)
    assert topic.trim_acked() == (0, None, None)
    assert left(topic) == [1, 2]


@pytest.mark.same_on_all_clients
def test_trim_acked_trims_a_long_topic_completely(topic: Topic):
    group = topic.group("only", "0")
    topic.publish_many([NewRecord(number) for number in range(23_456)])
    while records := group.poll("a", 5_000):
        group.ack(records)
    topic.publish("last")
    assert topic.trim_acked().dropped == 23_456
    assert left(topic) == ["last"]


def test_shrink_keeps_records_added_since_the_last_shrink(topic: Topic):
    publish(topic, *range(1, 6))
    assert topic.shrink_by_last_size() == 0
    assert left(topic) == [1, 2, 3, 4, 5]
    publish(topic, 6, 7)
    assert topic.shrink_by_last_size() == 5
    assert left(topic) == [6, 7]
    assert topic.shrink_by_last_size() == 2
    assert left(topic) == []
    publish(topic, 8)
    assert topic.shrink_by_last_size() == 0
    assert left(topic) == [8]


@pytest.mark.same_on_all_clients
def test_shrink_of_a_long_topic_takes_bounded_steps(topic: Topic):
    topic.publish_many([NewRecord(number) for number in range(25_000)])
    assert topic.shrink_by_last_size() == 0
    topic.publish("new")
    assert topic.shrink_by_last_size() == 25_000
    assert left(topic) == ["new"]


def test_trim_acked_keeps_records_that_a_rewound_group_will_read_again(topic: Topic):
    group = topic.group("only", "0")
    publish(topic, *range(1, 11))
    group.ack(group.poll("a", 10)[:9])
    group.set_position("0")
    assert topic.trim_acked() == (0, "only", "0-1")
    assert len(left(topic)) == 10


def test_shrink_keeps_new_records_after_another_trim(topic: Topic):
    publish(topic, *range(1, 6))
    topic.shrink_by_last_size()
    topic.trim(max_length=0, approximate=False)
    publish(topic, 6, 7)
    assert topic.shrink_by_last_size() == 0
    assert left(topic) == [6, 7]


@pytest.mark.same_on_all_clients
def test_trim_to_an_id_completes_even_with_long_records(topic: Topic):
    published = topic.publish_many([NewRecord(b"x" * 500) for _ in range(21_000)])
    assert topic.trim(min_id=published[-3].id, approximate=False) == 20_997
    assert topic.length() == 3


DROPS: dict[str, Callable[[Topic, Record], object]] = {
    "delete": lambda topic, first: topic.delete(first),
    "trim": lambda topic, _: topic.trim(max_length=1, approximate=False),
}
TOUCHES: dict[str, Callable[[Topic, list[Record]], object]] = {
    "renew": lambda topic, records: topic.execute(group_read.renew, "billing", "a", records),
    "hand_back": lambda topic, records: topic.execute(
        settle.hand_back, "billing", "a", "b", [(record, True) for record in records]
    ),
    "remove_consumer": lambda topic, _: topic.group("billing").remove_consumer("a", to="b"),
    "redeliver": lambda topic, records: topic.execute(settle.redeliver, "billing", "a", records, True),
    "reclaim": lambda topic, _: topic.group("billing").fetch_not_acked("b", 0),
}


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("touch", TOUCHES)
def test_stored_errors_of_a_record_are_deleted_with_it(topic: Topic, client: redis.Redis, drop: str, touch: str):
    group = topic.group("billing", start="0")
    publish(topic, 1, 2)
    records = group.poll("a")
    topic.execute(settle.settle, "billing", "a", [(record, Failed(error="boom")) for record in records])
    DROPS[drop](topic, records[0])
    TOUCHES[touch](topic, records)
    group.clear_ghosts()  # before 7.0, a claim leaves ghosts on the unacked list
    assert [each.id for each in group.unacked()] == ["2-0"]
    assert list(client.hgetall(TopicKeys.of_topic("delayq", "orders").failures("billing"))) == [b"2-0"]
