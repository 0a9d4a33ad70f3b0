from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import InvalidInput, NewRecord, Topic
from delayq.errors import HoldsRecords, InvalidName, UnknownConsumer, UnknownGroup
from delayq.operations.topics import publish as publish_operation
from delayq.operations.topics import read, settle, upkeep
from delayq.protocol.operation import execute
from tests.topics.conftest import Make, Now


def publish(topic: Topic, count: int) -> None:
    topic.publish_many([NewRecord(number) for number in range(count)])


def age() -> None:
    """Let a millisecond pass: in memory, a record handed out in the same millisecond does not count as older than 0."""
    time.sleep(0.002)


def payloads(records: list[Any]) -> list[Any]:
    return [record.payload for record in records]


def test_each_group_is_handed_every_record(topic: Topic):
    groups = [topic.group(name) for name in ("billing", "mail", "search")]
    publish(topic, 7)
    for group in groups:
        records = group.poll("a", 100)
        assert sorted(payloads(records)) == list(range(7))
        assert {record.deliveries for record in records} == {1}
        assert group.ack(records) == 7
        assert (group.poll("a", 100), group.unacked()) == ([], [])


def test_consumers_of_a_group_share_its_records(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 10)
    assert payloads(group.poll("a", 3)) == [0, 1, 2]
    assert payloads(group.poll("b", 4)) == [3, 4, 5, 6]
    assert payloads(group.poll("a", 100)) == [7, 8, 9]
    assert [(each.name, each.unacked) for each in group.consumers()] == [("a", 6), ("b", 4)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("$", []),
        ("0", [1, 2, 3]),
        ("1-0", [2, 3]),
        ("2", [3]),
        (dt.datetime.fromtimestamp(0.002, dt.UTC), [2, 3]),
        (dt.datetime.fromtimestamp(0, dt.UTC), [1, 2, 3]),
    ],
    ids=str,
)
def test_group_starts_at_a_given_position_and_can_be_moved_there(make: Make, start: Any, expected: list[int]):
    topic = make(shards=1)
    topic.publish_many([NewRecord(number, id=f"{number}-0") for number in (1, 2, 3)])
    assert payloads(topic.group("new", start).poll("a")) == expected
    other = topic.group("other", "0")
    other.poll("a")
    other.set_position(start)
    assert payloads(other.poll("a")) == expected


def test_existing_group_keeps_its_position(topic: Topic):
    publish(topic, 3)
    topic.group("billing", "0")
    assert len(topic.group("billing", "$").poll("a")) == 3


def test_own_unacked_records_can_be_read_again(topic: Topic):
    group = topic.group("billing")
    publish(topic, 9)
    records = group.poll("a", 6)
    group.poll("b", 3)
    group.ack(records[:2])
    again = group.own_unacked("a")
    assert sorted(payloads(again)) == sorted(payloads(records[2:]))
    assert min(record.deliveries for record in again) >= 2
    assert group.own_unacked("nobody") == []


def test_ack_returns_how_many_records_were_unacked(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 4)
    records = group.poll("a", 4)
    assert group.ack(records[0]) == 1
    assert group.ack([records[0], records[1]]) == 1
    assert group.ack(records[2].id) == 1
    assert group.ack([records[3].id, "1-1"]) == 1
    assert group.ack([]) == 0


def test_ack_of_something_else_than_records_is_refused(make: Make, subtests: pytest.Subtests):
    group = make(shards=1).group("billing")
    bad: Any
    for bad in [7, [7], "x", ["5-0", None]]:
        with subtests.test(bad=bad), pytest.raises((InvalidInput, TypeError)):
            group.ack(bad)


def test_poll_waits_for_a_record(make: Make):
    topic = make(clock=str)
    group = topic.group("billing")
    topic.publish("soon", delay=0.1)
    assert payloads(group.poll("a", wait=60)) == ["soon"]
    assert group.poll("a", wait=0.05) == []


def test_stale_records_are_taken_over_once(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 5)
    group.poll("dead", 5)
    assert group.fetch_not_acked("b", ack_timeout=3600) == []
    age()
    taken = group.fetch_not_acked("b", ack_timeout=0, count=2)
    assert payloads(taken) == [0, 1]
    assert {record.deliveries for record in taken} == {2}
    assert [(each.id, each.consumer) for each in group.unacked("b")] == [(each.id, "b") for each in taken]
    assert len(group.unacked("dead")) == 3


def test_unacked_of_an_unknown_consumer_is_an_error(topic: Topic):
    group = topic.group("mail")
    publish(topic, 1)
    assert group.ack(group.poll("a")) == 1
    assert group.unacked("a") == []
    with pytest.raises(UnknownConsumer, match=r"group mail of topic \w+ has no consumer 'b': see group.consumers"):
        group.unacked("b")


def test_record_delivered_too_often_becomes_a_dead_letter_of_its_group_only(make: Make):
    topic = make(shards=1)
    group, other = topic.group("billing", max_deliveries=2), topic.group("mail")
    published = topic.publish({"a": 1}, headers={"h": "x"})
    group.poll("a")
    age()
    assert len(group.fetch_not_acked("b", 0)) == 1
    age()
    assert group.fetch_not_acked("c", 0) == []
    (letter,) = group.dead()
    assert (letter.record.id, letter.record.payload, letter.record.headers) == (published.id, {"a": 1}, {"h": "x"})
    assert (letter.consumer, letter.deliveries, letter.reason) == ("b", 2, "deliveries-exhausted")
    assert group.unacked() == []
    assert (other.lag(), other.dead()) == (1, [])


def test_entry_with_too_many_fields_for_a_script_is_buried_without_some_of_them(make: Make, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing", "0", max_deliveries=1)
    publish(topic, 1)
    client.xadd(topic._context.shards[0].keys.stream, {f"f{number}": "v" for number in range(4_500)})
    publish(topic, 1)
    assert len(group.poll("a")) == 3
    age()
    assert group.fetch_not_acked("b", 0) == []
    assert group.unacked() == []
    assert [len(letter.record.fields) for letter in group.dead()] == [2, 7_900, 2]
    assert group.dead()[1].errors == ["550 of its fields are left out here"]


def test_buried_record_keeps_its_reason_and_error(topic: Topic):
    group = topic.group("billing")
    topic.publish("bad")
    (record,) = group.poll("a")
    assert group.bury(record, "b") is False
    assert group.bury(record, "a", "unwanted", ValueError("no\nsuch")) is True
    assert group.bury(record, "a") is False
    (letter,) = group.dead()
    assert (letter.reason, letter.errors, letter.deliveries) == ("unwanted", ["ValueError: no such"], 1)


def test_dead_letters_can_be_requeued_after_the_topic_was_trimmed(make: Make):
    topic = make(shards=1)
    group, other = topic.group("billing"), topic.group("mail")
    publish(topic, 3)
    other.ack(other.poll("o"))
    for record in group.poll("a"):
        group.bury(record, "a")
    letters = group.dead()
    topic.trim(min_id=letters[1].record.id, approximate=False)
    assert group.requeue_dead(letters) == 3
    assert (group.dead(), group.dead_length()) == ([], 0)
    assert payloads(group.fetch_not_acked("b", 30)) == [1, 2]
    (again,) = group.poll("b")
    assert (again.payload, again.deliveries) == (0, 1)
    assert group.requeue_dead(letters) == 0


def test_requeued_record_is_seen_only_by_its_group(make: Make):
    topic = make(shards=1)
    group, other = topic.group("billing"), topic.group("mail")
    publish(topic, 2)
    assert other.ack(other.poll("o")) == 2
    for record in group.poll("a"):
        group.bury(record, "a")
    topic.trim(max_length=0, approximate=False)
    assert group.requeue_dead(group.dead()) == 2
    assert (other.poll("o"), other.unacked()) == ([], [])
    assert topic.range() == []
    assert payloads(topic.group("late", start="0").poll("l")) == []
    records = group.poll("a")
    assert payloads(records) == [0, 1]
    for record in records:  # dead again, and requeued again
        group.bury(record, "a")
    topic.trim(max_length=0, approximate=False)
    assert group.requeue_dead(group.dead()) == 2
    assert payloads(group.poll("a")) == [0, 1]


def test_dead_letters_can_be_counted_and_deleted(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 3)
    for record in group.poll("a"):
        group.bury(record, "a")
    letters = group.dead()
    assert group.dead_length() == 3
    assert (group.delete_dead(letters[0]), group.delete_dead(letters)) == (1, 2)
    assert (group.dead(), group.dead_length()) == ([], 0)


def test_dead_letters_are_read_page_by_page_and_settled_by_their_places(topic: Topic):
    group = topic.group("billing")
    publish(topic, 7)
    for record in group.poll("a"):
        group.bury(record, "a")
    letters, after = group.dead_page(count=3)
    assert len(letters) == 3
    while after is not None:
        more, after = group.dead_page(after, 3)
        letters += more
    assert sorted(payloads([each.record for each in letters])) == list(range(7))
    assert [str(group.get_dead(each.place)) for each in letters] == list(map(str, letters))
    assert group.delete_dead(letters[0].place) == 1
    assert group.requeue_dead([letters[1].place, letters[2]]) == 2
    assert group.get_dead(letters[0].place) is None
    assert group.dead_length() == 4
    with pytest.raises(InvalidInput, match="1 to 499"):
        group.dead_page(count=500)


def test_group_knows_whether_it_is_new(topic: Topic):
    assert [topic.group("billing").is_new for _ in range(2)] == [True, False]
    assert not topic.group("mail", create=False).is_new


def test_large_records_are_all_delivered_in_several_calls(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    for number in range(5):
        topic.publish(bytes([number]) * 1_000_000)
    assert [len(group.poll("a", 5)) for _ in range(6)] == [1, 1, 1, 1, 1, 0]
    records = group.own_unacked("a")
    assert [record.body[0] for record in records] == [0, 1, 2, 3, 4]
    times = records[0].deliveries
    again, left, _ = topic.execute(settle.redeliver, "billing", "a", records, True)
    assert [(record.body[0], record.deliveries) for record in again] == [(0, times + 1)]
    assert left == records[1:]
    age()
    assert len(group.fetch_not_acked("b", 0)) == 5
    assert group.clear_ghosts() == 0
    for record in group.own_unacked("b"):
        group.bury(record, "b")
    assert group.requeue_dead(group.dead()) == 5
    assert len(group.fetch_not_acked("c", 30)) == 5


def test_large_due_records_are_appended_a_few_at_a_time(make: Make, now: Now):
    topic = make(shards=1)
    topic.publish_many([NewRecord(bytes([number]) * 900_000, delay=number + 1) for number in range(5)])
    now.later(10)
    for length, next_ms in ((2, 0), (4, 0), (5, None)):
        assert topic.execute(publish_operation.append_due).next_ms == next_ms
        assert topic.execute(read.length) == length
    assert [record.body[0] for record in topic.range()] == [0, 1, 2, 3, 4]


def test_poll_of_large_due_records_returns_a_few(make: Make, now: Now):
    topic = make(shards=1)
    group = topic.group("billing")
    topic.publish_many([NewRecord(bytes(900_000), delay=number + 1) for number in range(12)])
    now.later(20)
    counts = [len(group.poll("a", 200)) for _ in range(6)]
    assert max(counts) == 2
    assert sum(counts) == 12


def test_trim_drops_large_records_a_few_at_a_time_and_small_ones_by_the_thousand(make: Make):
    topic = make(shards=1)
    for _ in range(30):
        topic.publish_many([NewRecord(bytes(size)) for size in (900_000, 1, 900_000)])
    topic.publish_many([NewRecord(number) for number in range(12_000)])
    shard = topic._context.shards[0]
    counts = list[int]()
    more = 1
    while more:
        count, more = topic.execute(lambda _: execute(shard.trim("MAXLEN", 7, exact=True)))
        counts.append(count)
    assert counts[0] in range(7, 10)  # five large records, and the small ones between them
    assert max(counts[1:]) > 5_000
    assert (sum(counts), topic.length()) == (12_083, 7)


def test_dead_letters_older_than_the_retention_are_deleted(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 2)
    for record in group.poll("a"):
        group.bury(record, "a")
    age()
    for kept, left in ((None, 2), (60, 2), (200 * 365 * 86400, 2), (0, 0)):
        again = make(shards=1, dead_retention=kept)
        assert again.execute(upkeep.purge_old, "billing") is False
        assert group.dead_length() == left


def test_each_poll_deletes_a_page_of_old_dead_letters(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    topic.publish_many([NewRecord(bytes(900_000)) for _ in range(8)])
    while records := group.poll("a"):
        for record in records:
            group.bury(record, "a")
    age()
    left = list[int]()
    for kept in (None, 60, 0, 0):
        poller = make(shards=1, dead_retention=kept).group("billing")
        for _ in range(2):
            assert poller.poll("b") == []
            left.append(group.dead_length())
    assert left == [8, 8, 8, 8, 3, 0, 0, 0]


def test_poll_returns_records_even_if_old_dead_letters_cannot_be_deleted(make: Make, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing")
    client.set(topic._context.shards[0].keys.buried("billing"), "mine")
    publish(topic, 3)
    assert payloads(group.poll("a")) == [0, 1, 2]


def test_ghosts_are_found_cleared_and_counted(make: Make, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 10)
    records = group.poll("a", 10)
    topic.trim(max_length=6, approximate=False)
    client.xdel("delayq:{orders}:topic", records[7].id)
    assert group.clear_ghosts() == 5
    assert group.clear_ghosts() == 0
    assert [each.id for each in group.unacked()] == [records[place].id for place in (4, 5, 6, 8, 9)]


def test_ghosts_are_not_handed_out(make: Make):
    topic = make(shards=1)
    group = topic.group("billing", max_deliveries=5)
    publish(topic, 4)
    group.poll("a", 4)
    topic.trim(max_length=1, approximate=False)
    assert payloads(group.own_unacked("a")) == [3]
    age()
    assert payloads(group.fetch_not_acked("b", 0)) == [3]
    assert len(group.unacked()) == 1


def test_consumer_that_holds_records_can_only_be_removed_by_passing_them_on(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 700)
    group.poll("a", 700)
    with pytest.raises(HoldsRecords, match="consumer a of group billing holds unacked records"):
        group.remove_consumer("a")
    assert group.remove_consumer("a", to="b") == 700
    assert [(each.name, each.unacked) for each in group.consumers()] == [("b", 700)]
    assert {each.deliveries for each in group.unacked(count=1_000)} == {1}


def test_consumer_without_records_can_be_removed(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 1)
    group.ack(group.poll("a"))
    assert group.remove_consumer("a") == 0
    assert group.consumers() == []
    with pytest.raises(UnknownConsumer, match="group billing has no consumer a"):
        group.remove_consumer("a")
    with pytest.raises(InvalidInput, match="to='a'"):
        group.remove_consumer("a", to="a")


def test_consumer_is_removed_from_all_shards_that_know_it(make: Make, client: redis.Redis):
    topic = make(shards=3)
    group = topic.group("billing", "0")
    topic.publish_many([NewRecord(number, key=str(number)) for number in range(20)])
    held = group.poll("a", 100)
    assert {record.shard for record in held} == {0, 1, 2}
    group.ack([record for record in held if record.shard != 2])
    with pytest.raises(HoldsRecords):
        group.remove_consumer("a")
    for scripts in topic._context.shards:  # nothing was changed: the consumer is still in all of them
        assert len(client.xinfo_consumers(scripts.keys.stream, "billing")) == 1
    assert group.remove_consumer("a", to="b") == len(group.unacked("b"))
    assert [each.name for each in group.consumers()] == ["b"]
    assert group.remove_consumer("b", to="c") == len(group.unacked("c")) > 0
    with pytest.raises(UnknownConsumer):
        group.remove_consumer("b")


def test_lag_counts_undelivered_records(topic: Topic):
    group = topic.group("billing", "0")
    assert group.lag() == 0
    publish(topic, 12)
    assert group.lag() == 12
    group.poll("a", 5)
    assert group.lag() == 7
    (info,) = topic.groups()
    assert (info.name, info.unacked, info.lag, info.consumers) == ("billing", 5, 7, 1)


def test_lag_is_right_after_the_topic_was_trimmed(make: Make):
    topic = make(shards=1)
    group = topic.group("billing", "0")
    publish(topic, 1_500)
    group.poll("a", 10)
    topic.trim(max_length=1_200, approximate=False)
    assert group.lag() == 1_200


def test_lag_of_a_group_that_missed_trimmed_records_counts_down_to_0(any_client: redis.Redis):
    topic = Topic("orders", redis=any_client)
    group = topic.group("billing", "0")
    publish(topic, 1_500)
    group.poll("a", 10)
    topic.trim(max_length=500, approximate=False)
    lags = [group.lag()]
    for count in (1, 496, 1, 2):
        group.poll("a", count)
        lags.append(group.lag())
    assert lags == [500, 499, 3, 2, 0]
    assert topic.groups()[0].lag == 0
    topic.publish("a")
    assert group.lag() == 1


def test_partly_counted_lag_says_so(make: Make):
    topic = make(shards=1)
    group = topic.group("billing", "0")
    publish(topic, 10_200)
    records = topic.range(count=300)
    group.set_position(records[10].id)
    assert group.info()[3:] == (10_000, records[10].id, True, 0)
    assert group.info(quick=True).lag == topic.groups(quick=True)[0].lag == 1_000
    assert topic.group_readings()[0].info == group.info(quick=True)
    group.set_position(records[-1].id)
    assert group.info()[3:] == (9_900, records[-1].id, False, 0)


def test_unknown_group_is_named_and_not_created(make: Make):
    topic = make(shards=1)
    group = topic.group("billing")
    assert group.destroy() is True
    assert group.destroy() is False
    topic.publish("a")
    calls: list[Callable[[], Any]] = [
        lambda: group.poll("a"),
        lambda: group.own_unacked("a"),
        lambda: group.fetch_not_acked("a", 0),
        group.unacked,
        group.clear_ghosts,
        group.info,
        group.consumers,
        lambda: group.set_position("0"),
        lambda: group.remove_consumer("a", "b"),
        lambda: group.ack("1-0"),
        group.dead,
    ]
    for call in calls:
        with pytest.raises(UnknownGroup, match=r"has no group billing: create it with topic\.group"):
            call()
    assert topic.groups() == []


def test_group_with_many_unacked_records_is_destroyed(make: Make):
    topic = make(shards=1)
    group = topic.group("billing", "0")
    publish(topic, 1200)
    while group.poll("a", count=500):
        pass
    assert group.destroy() is True
    assert (topic.groups(), topic.length()) == ([], 1200)


def test_destroyed_group_leaves_only_a_mark_that_expires(make: Make, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing")
    topic.publish("a")
    (record,) = group.poll("a")
    group.bury(record, "a")
    before = {key for key in client.scan_iter() if b":group:" in key}
    assert before
    group.destroy()
    (watch,) = {key for key in client.scan_iter() if b":group:" in key}
    assert 0 < client.pttl(watch) <= 30 * 86_400_000
    topic.group("billing")
    assert {key for key in client.scan_iter() if b":group:" in key} == {watch}
    assert (client.hkeys(watch), client.pttl(watch)) == ([b"made"], -1)


def test_names_are_checked(topic: Topic, subtests: pytest.Subtests):
    bad: Any
    for bad in ["", "x" * 257, "a\nb", 7]:
        with subtests.test(bad=bad):
            with pytest.raises(InvalidName, match="group name"):
                topic.group(bad)
            group = topic.group("billing")
            for call in (group.poll, group.own_unacked, group.fetch_not_acked):
                with pytest.raises(InvalidName, match="consumer name"):
                    call(bad)


def test_max_deliveries_is_checked(topic: Topic, subtests: pytest.Subtests):
    bad: Any
    for bad in [0, -1, 1.5, "2", True]:
        with subtests.test(bad=bad), pytest.raises(InvalidInput, match="max_deliveries"):
            topic.group("billing", max_deliveries=bad)


def test_records_of_another_topic_are_refused(make: Make):
    mine, other = make("mine", shards=1), make("other", shards=1)
    group = mine.group("billing")
    foreign = other.group("billing")
    for topic in (mine, other):
        topic.publish("a")
    group.poll("a")
    (record,) = foreign.poll("a")
    nothing: Any = 5
    calls: list[Callable[[], Any]] = [
        lambda: group.ack(record),
        lambda: group.bury(record, "a"),
        lambda: group.ack(nothing),
        lambda: group.requeue_dead([nothing]),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=r"is not a (record of this topic|dead letter)"):
            call()
    assert len(group.unacked()) == len(foreign.unacked()) == 1
