from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import InvalidInput, NewRecord, Topic
from delayq.errors import DelayqError, KeyOverwritten, PayloadTooLarge, RecordOrder, ShardsMismatch
from delayq.model.envelope import encode_envelope
from delayq.model.units import from_ms
from tests.topics.conftest import START, Make, Now

LATER = dt.datetime(2040, 1, 1, tzinfo=dt.UTC)


def payloads(topic: Topic, **options: Any) -> list[Any]:
    return [record.payload for record in topic.range(count=10_000, **options)]


def test_payload_arrives_as_it_was_published(topic: Topic, subtests: pytest.Subtests):
    payloads: list[Any] = [{"a": [1, 2.5, None]}, b"\x00\xff raw", "text", 7, None, [], b""]
    for payload in payloads:
        with subtests.test(payload=payload):
            published = topic.publish(payload, headers={"tenant": "a", "n": 1})
            (record,) = topic.range()
            assert (record.payload, record.headers, record.id) == (payload, {"tenant": "a", "n": 1}, published.id)
            assert (published.created, published.due_at, record.deliveries, record.topic) == (True, None, 0, "orders")
        topic.delete(list(topic.range()))


@pytest.mark.parametrize(
    "record",
    [5, NewRecord(object()), NewRecord("x", id="5"), NewRecord("x", delay=-1), NewRecord("x", delay=1, id="")],
    ids=["number", "payload", "id", "delay", "waiting-id"],
)
def test_refused_record_leaves_no_trace_of_a_new_topic(topic: Topic, client: redis.Redis, record: Any):
    with pytest.raises(InvalidInput):
        topic.publish_many([NewRecord("fine"), record])
    assert client.keys("*") == []


@pytest.mark.parametrize("delay", [0, 5])
def test_headers_of_delayq_are_refused(topic: Topic, client: redis.Redis, delay: float):
    for headers in ({"delayq-slot": 1}, {"tenant": "a", "DELAYQ-x": None}):
        with pytest.raises(InvalidInput, match="rename it or leave it out"):
            topic.publish("x", delay=delay, headers=headers)
        with pytest.raises(InvalidInput, match="rename it or leave it out"):
            topic.publish_many([NewRecord("y", delay=delay), NewRecord("x", delay=delay, headers=headers)])
    assert (topic.length(), [*client.scan_iter("*msg:*")]) == (0, [])


def test_headers_of_delayq_that_another_client_has_written_are_not_shown_and_can_be_passed_on(
    topic: Topic, client: redis.Redis
):
    topic.publish("x", headers={"tenant": "a"})
    (record,) = topic.range()
    envelope = encode_envelope("y", 0, None, {"tenant": "a"}, own={"delayq-slot": True, "Delayq-Plan": b"\xff"})
    key = next(iter(client.scan_iter(_type="stream")))
    client.xadd(key, {record.fields[0]: envelope})
    assert [each.headers for each in topic.range()] == [{"tenant": "a"}] * 2
    topic.publish("z", headers=list(topic.range())[-1].headers)


def test_records_keep_the_order_in_which_they_were_published(make: Make):
    topic = make(shards=1)
    published = topic.publish_many([NewRecord(number) for number in range(1_200)])
    assert payloads(topic) == list(range(1_200))
    assert [record.id for record in topic.range(count=2_000)] == [each.id for each in published]
    assert topic.length() == 1_200


def test_records_of_one_key_keep_their_order_across_shards(make: Make):
    topic = make(shards=3)
    topic.publish_many([NewRecord([key, number], key=key) for number in range(100) for key in "abcdefgh"])
    records = topic.range(count=2_000)
    assert len({record.shard for record in records}) == 3
    for key in "abcdefgh":
        assert [r.payload[1] for r in records if r.payload[0] == key] == list(range(100))
        assert len({r.shard for r in records if r.payload[0] == key}) == 1


def test_records_without_a_key_go_to_all_shards(make: Make):
    topic = make(shards=3)
    topic.publish_many([NewRecord(number) for number in range(300)])
    shards = [record.shard for record in topic.range(count=300)]
    assert [shards.count(number) for number in range(3)] == [100, 100, 100]


def test_own_ids_must_rise(make: Make):
    topic = make(shards=1)
    assert topic.publish("a", id="5-1").id == "5-1"
    for old in ("5-1", "5-0", "4-9"):
        with pytest.raises(RecordOrder, match=f"{old} does not come after 5-1"):
            topic.publish("b", id=old)
    assert topic.publish("c", id="5-2").id == "5-2"
    assert topic.publish("d", id="40-0").id == "40-0"
    assert payloads(topic) == ["a", "c", "d"]


def test_own_ids_of_a_batch_are_checked_before_the_first_is_stored(make: Make):
    topic = make(shards=1)
    topic.publish("a", id="5-1")
    with pytest.raises(InvalidInput, match="'7-1' does not come after '7-1'"):
        topic.publish_many([NewRecord("b", id="6-0"), NewRecord("c", id="7-1"), NewRecord("d", id="7-1")])
    with pytest.raises(InvalidInput, match="give all of them an id, or none"):
        topic.publish_many([NewRecord("b", id="6-0"), NewRecord("c")])
    with pytest.raises(RecordOrder):
        topic.publish_many([NewRecord("b", id="5-0"), NewRecord("c", id="7-1")])
    assert payloads(topic) == ["a"]


def test_invalid_id_is_refused(topic: Topic, subtests: pytest.Subtests):
    bad: Any
    for bad in ["", "x", "5", "5-", "-5", "0-0", "5-1-1", "9" * 17 + "-1", "5-x", 7]:
        with subtests.test(bad=bad):
            with pytest.raises(InvalidInput, match="record id"):
                topic.publish("a", id=bad)
            assert topic.length() == 0


def test_invalid_record_is_refused_and_nothing_is_stored(topic: Topic, subtests: pytest.Subtests):
    records: Any
    for records in ["abc", 7, [{"a": 1}], [NewRecord("a"), "b"]]:
        with subtests.test(records=records):
            with pytest.raises(InvalidInput):
                topic.publish_many(records)
            assert topic.length() == 0


def test_payload_over_the_limit_is_refused(make: Make):
    topic = make(max_payload=10)
    with pytest.raises(PayloadTooLarge):
        topic.publish_many([NewRecord(b"x" * 10), NewRecord(b"x" * 11)])
    assert topic.length() == 0


def test_topic_keeps_its_max_length(make: Make):
    topic = make(shards=1, max_length=5, exact=True)
    for number in range(12):
        topic.publish(number)
    assert payloads(topic) == [7, 8, 9, 10, 11]
    topic.publish("last", max_length=1)
    assert payloads(topic) == ["last"]


def test_approximate_max_length_keeps_at_least_that_many(make: Make):
    topic = make(shards=1, max_length=100)
    topic.publish_many([NewRecord(number) for number in range(2_000)])
    assert 100 <= topic.length() < 2_000
    assert payloads(topic)[-1] == 1_999


def test_max_length_is_checked(make: Make, subtests: pytest.Subtests):
    bad: Any
    for bad in [-1, 1.5, "5", True]:
        with subtests.test(bad=bad):
            with pytest.raises(InvalidInput, match="max_length"):
                make(max_length=bad)
            with pytest.raises(InvalidInput, match="max_length"):
                make().publish("a", max_length=bad)


def test_delayed_record_is_appended_when_it_is_due_and_not_before(topic: Topic, now: Now, client: redis.Redis):
    published = topic.publish({"a": 1}, delay=10, headers={"h": "x"})
    assert published.due_at == from_ms(START + 10_000)
    assert topic.length() == 0
    now.later(9.999)
    assert topic.range() == []
    now.later(0.001)
    assert (topic.range(due=False), topic.length(due=False)) == ([], 0)  # for a user who may only read
    (record,) = topic.range()
    assert (record.payload, record.headers) == ({"a": 1}, {"h": "x"})
    assert not [key for key in client.scan_iter() if b":msg:" in key or b":pending" in key]


def test_delayed_records_are_appended_in_order_of_due_time(make: Make, now: Now):
    topic = make(shards=1)
    topic.publish_many([NewRecord(number, delay=1 + number % 7) for number in range(1_200)])
    now.later(60)
    assert sorted(payloads(topic)) == list(range(1_200))
    assert [number % 7 for number in payloads(topic)] == sorted(number % 7 for number in range(1_200))


def test_record_that_is_due_before_all_others_wakes_the_readers(topic: Topic, client: Any):
    for seconds in (10, 5, 60):
        topic.publish(seconds, delay=seconds, key="of one shard")
    (waking,) = client.keys("*:waking")
    ((_, last),) = client.xrange(waking)  # the stream keeps one entry
    assert int(last[b"due"]) == START + 5_000


def test_delayed_record_with_a_waiting_id_is_left_unchanged(topic: Topic, now: Now):
    assert topic.publish("first", delay=5, id="a").created
    again = topic.publish("second", delay=1, id="a")
    assert (again.id, again.created) == ("a", False)
    now.later(5)
    assert payloads(topic) == ["first"]


def test_id_of_a_delayed_record_is_checked_in_the_shard_of_its_key(make: Make):
    topic = make(shards=3)
    assert topic.publish(1, delay=5, id="x", key="a").created
    assert not topic.publish(2, delay=5, id="x", key="a").created
    assert not topic.publish(3, delay=5, id="x", key="c").created  # in the same shard
    assert topic.publish(4, delay=5, id="x", key="b").created  # in another shard
    assert topic.publish(5, delay=5, id="y").created
    assert not topic.publish(6, delay=5, id="y").created
    assert (topic.cancel("x"), topic.cancel("y")) == (True, True)
    assert (topic.cancel("x"), topic.cancel("y")) == (False, False)


def test_one_id_under_keys_of_several_shards_is_refused_and_nothing_is_stored(make: Make, client: redis.Redis):
    topic = make(shards=3)
    with pytest.raises(InvalidInput, match="id 'x' is given with keys of several shards: always give it the same key"):
        topic.publish_many([NewRecord(number, delay=5, id="x", key=key) for number, key in enumerate("ab")])
    assert not [key for key in client.scan_iter() if b":msg:" in key]
    created = topic.publish_many([NewRecord(number, delay=5, id="x", key=key) for number, key in enumerate("ac")])
    assert [each.created for each in created] == [True, False]


def test_delayed_record_can_be_cancelled_while_it_waits(topic: Topic, now: Now):
    published = topic.publish("a", at=LATER)
    assert topic.cancel(published.id) is True
    assert topic.cancel(published.id) is False
    now.ms = int(LATER.timestamp() * 1000)
    assert topic.length() == 0


def test_missing_envelope_does_not_hold_up_other_records(topic: Topic, now: Now, client: redis.Redis):
    topic.publish("a", delay=1, id="a")
    topic.publish("b", delay=2, id="b")
    (key,) = [key for key in client.scan_iter() if key.endswith(b":msg:a")]
    client.delete(key)
    now.later(2)
    assert payloads(topic) == ["b"]


def test_overwritten_envelope_is_reported_and_does_not_hold_up_other_records(make: Make, now: Now, client: redis.Redis):
    topic = make(shards=1)
    for number in range(4):
        topic.publish(number, delay=1 + number, id=f"r{number}")
    overwritten = {number: f"delayq:{{orders}}:topic:msg:r{number}" for number in (0, 2)}
    for key in overwritten.values():
        client.delete(key)
        client.rpush(key, "theirs")
    now.later(1)
    with capture_logs() as lines:
        assert payloads(topic) == []
        now.later(9)
        assert payloads(topic) == [1, 3]
        assert payloads(topic) == [1, 3]
    logged = [(line["log_level"], line["topic"], line["count"], line["ids"]) for line in lines]
    assert logged == [("error", "orders", 1, ["r0"]), ("error", "orders", 1, ["r2"])]
    assert all(client.lrange(key, 0, -1) == [b"theirs"] for key in overwritten.values())
    assert topic.cancel("r0") is False
    assert topic.publish("again", delay=0.001, id="r0").created


def test_key_of_the_wrong_type_is_named_and_left_unchanged(make: Make, client: redis.Redis):
    topic = make(shards=1)
    client.set("delayq:{orders}:topic", "mine")
    for call in (lambda: topic.publish("a"), topic.range, topic.length, lambda: topic.group("g"), topic.trim_acked):
        with pytest.raises(
            KeyOverwritten, match=r"value; delayq:\{orders\}:topic, or another key .* belongs to another program"
        ):
            call()
    topic.publish("a", delay=1)
    assert client.get("delayq:{orders}:topic") == b"mine"


def test_delayed_record_stays_if_its_topic_was_overwritten(make: Make, now: Now, client: redis.Redis):
    topic = make(shards=1)
    topic.publish("a", delay=1)
    client.set("delayq:{orders}:topic", "mine")
    now.later(1)
    with pytest.raises(KeyOverwritten):
        topic.range()
    client.delete("delayq:{orders}:topic")
    assert payloads(topic) == ["a"]


def test_delayed_record_stays_if_its_topic_accepts_no_more(make: Make, now: Now, client: redis.Redis):
    topic = make(shards=1)
    topic.publish_many([NewRecord(number, delay=1) for number in range(3)])
    stream = topic._context.shards[0].keys.stream
    client.xadd(stream, {"x": "y"}, id=f"{2**64 - 1}-{2**64 - 1}")  # no id is greater
    now.later(2)
    for _ in range(3):
        with pytest.raises(DelayqError):
            topic.length()
    client.delete(stream)
    assert sorted(payloads(topic)) == [0, 1, 2]


def test_number_of_shards_is_recorded(make: Make):
    make(shards=2).publish("a")
    with pytest.raises(ShardsMismatch, match=r":topic:meta has shards=2, not 4: open it with shards=2"):
        make(shards=4).publish("b")
    assert make(shards=None).length() == 1


def test_name_of_a_topic_is_checked(make: Make, subtests: pytest.Subtests):
    bad: Any
    for bad in ["", "a{b", "a#b", 7, "x" * 129]:
        with subtests.test(bad=bad), pytest.raises(InvalidInput, match="topic name"):
            make(bad)


def test_own_ids_of_many_records_are_refused_together(make: Make):
    topic = make(shards=1)
    topic.publish("last", id="700-0")
    with pytest.raises(RecordOrder):
        topic.publish_many([NewRecord(number, id=f"{number}-0") for number in range(1, 1_001)])
    assert payloads(topic) == ["last"]


def test_topic_with_only_delayed_records_keeps_its_max_length(make: Make, now: Now):
    topic = make(shards=1, max_length=5, exact=True)
    topic.publish_many([NewRecord(number, delay=1 + number) for number in range(12)])
    now.later(20)
    assert payloads(topic) == [7, 8, 9, 10, 11]
