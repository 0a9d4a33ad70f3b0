from __future__ import annotations

import datetime as dt
from contextlib import aclosing, closing
from typing import Any

import pytest
import redis

from delayq import InvalidInput, NewRecord, Record, Topic
from delayq.errors import ServerUnreachable
from delayq.operations.topics import publish, read
from delayq.runtime import receive_wait_async
from delayq.runtime.receive_wait import TopicWait
from delayq.transport import listener, listener_async
from tests.topics.conftest import Awaited, Make


@pytest.fixture
def numbered(make: Make) -> Topic:
    """A topic whose records have the ids 1-0 to 9-0, and these numbers as payloads."""
    topic = make(shards=1)
    topic.publish_many([NewRecord(number, id=f"{number}-0") for number in range(1, 10)])
    return topic


RANGES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ({"start": "3-0", "end": "5-0"}, [3, 4, 5]),
    ({"start": "(3-0", "end": "(5-0"}, [4]),
    ({"start": "3", "end": "5"}, [3, 4, 5]),
    ({"start": "8-1"}, [9]),
    ({"count": 2}, [1, 2]),
    ({"reverse": True, "count": 2}, [9, 8]),
    ({"reverse": True, "start": "3-0", "end": "(5-0"}, [4, 3]),
    ({"start": "7-0", "end": "2-0"}, []),
    ({"start": dt.datetime.fromtimestamp(0.004, dt.UTC)}, [4, 5, 6, 7, 8, 9]),
    ({"end": dt.datetime.fromtimestamp(0.004, dt.UTC)}, [1, 2, 3, 4]),
]


def test_range_reads_between_its_bounds(numbered: Topic, subtests: pytest.Subtests):
    for options, expected in RANGES:
        with subtests.test(options=options):
            assert [record.payload for record in numbered.range(**options)] == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_pages_have_no_gap_or_overlap(make: Make, reverse: bool):
    topic = make(shards=1)
    topic.publish_many([NewRecord(number) for number in range(1_301)])
    numbers = list(range(1_301))
    found = [record.payload for record in topic.range(count=1_300, reverse=reverse)]
    assert found == (numbers[::-1] if reverse else numbers)[:1_300]


UNREADABLE: list[dict[str, Any]] = [
    {"start": "x"},
    {"end": "1-2-3"},
    {"start": 5},
    {"start": "("},
    {"start": dt.datetime(2024, 1, 1)},  # noqa: DTZ001
    {"count": 0},
    {"count": 1_000_001},
    {"count": "5"},
]


def test_bounds_are_checked(topic: Topic, subtests: pytest.Subtests):
    for options in UNREADABLE:
        with subtests.test(options=options), pytest.raises(InvalidInput):
            topic.range(**options)


def test_records_of_several_shards_are_ordered_by_id(make: Make):
    topic = make(shards=3)
    topic.publish_many([NewRecord(number) for number in range(300)])
    ids = [record.id for record in topic.range(count=1_000)]
    assert ids == sorted(ids, key=lambda each: tuple(map(int, each.split("-"))))
    assert [record.id for record in topic.range(count=1_000, reverse=True)] == ids[::-1]


def test_entry_of_another_program_is_read_as_its_fields(make: Make, client: redis.Redis):
    topic = make(shards=1)
    client.xadd("delayq:{orders}:topic", {"name": "value", "é": b"\xff"})
    (record,) = topic.range()
    assert record.payload == record.values == {"name": "value", "é": "�"}
    assert (record.body, record.headers) == (b"", {})


def test_topic_that_does_not_exist_is_empty_and_leaves_no_trace(make: Make, client: redis.Redis):
    topic = make("never")
    assert (topic.range(), topic.length(), topic.groups()) == ([], 0, [])
    assert list(client.scan_iter()) == []


def test_tail_starts_at_a_given_position(numbered: Topic):
    def seen(start: Any) -> list[int]:
        return [record.payload for record in numbered.tail(start, wait=0)]

    assert seen("0") == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert seen("7-0") == [8, 9]
    assert seen(dt.datetime.fromtimestamp(0.008, dt.UTC)) == [8, 9]
    assert seen("$") == []


def test_tail_continues_from_page_to_page(make: Make):
    topic = make(shards=1)
    topic.publish_many([NewRecord(number) for number in range(1_201)])
    assert [record.payload for record in topic.tail("0", wait=0)] == list(range(1_201))


def test_tail_returns_records_that_arrive_while_it_waits(make: Make):
    topic = make(shards=1, clock=str)
    old = topic.publish("old")
    topic.publish("delayed", delay=0.1)
    assert first_of_tail(topic, old.id).payload == "delayed"


def first_of_tail(topic: Any, start: str) -> Record:
    """Return the first record that arrives after the one that already exists."""
    if not isinstance(topic, Awaited):
        with closing(topic.tail(start, wait=60)) as records:
            return next(records)

    async def first() -> Record:
        async with aclosing(topic.target.tail(start, wait=60)) as records:
            return await anext(records)

    return topic.runner.run(first())


def run(topic: Any, work: Any) -> Any:
    """Run an operation or a wait in either API."""
    return topic.runner.run(work) if isinstance(topic, Awaited) else work


@pytest.mark.parametrize("start", ["$", "0"])
def test_reader_with_shards_none_can_start_before_the_topic_exists(make: Make, start: str):
    reader: Any = make(shards=None)
    place = read.Tail(reader._context, start)
    run(reader, reader._executor.execute(place.begin()))
    assert run(reader, reader._executor.execute(place.more())) == []
    make(shards=3).publish_many([NewRecord(number) for number in range(30)])
    found = list[Record]()
    while page := run(reader, reader._executor.execute(place.more())):
        found += page
    assert sorted(record.payload for record in found) == list(range(30))


def test_wait_ends_at_once_when_it_finds_more_shards(make: Make):
    reader: Any = make(shards=None)
    before = reader.execute(publish.append_due).seen
    assert len(before) == 1
    make(shards=3).publish("a")
    kind: Any = receive_wait_async.TopicWait if isinstance(reader, Awaited) else TopicWait
    waiting = kind(reader._context, reader._executor)
    run(reader, waiting.wait(before, 3600))
    run(reader, waiting.close())
    assert len(reader._context.shards) == 3


def test_wait_goes_on_if_one_of_several_shards_cannot_be_listened_on(make: Make, monkeypatch: pytest.MonkeyPatch):
    """The shards are read again after a second at the latest, and the others may have a record sooner."""
    reader: Any = make(shards=3)
    before = reader.execute(publish.append_due).seen
    is_async = isinstance(reader, Awaited)
    kind: Any = receive_wait_async.TopicWait if is_async else TopicWait
    listening: Any = listener_async.BellListener if is_async else listener.BellListener
    away, listen = reader._context.shards[0].keys.stream, listening.listen

    def refuse(bell: Any) -> Any:
        if bell.source.key == away:
            raise ServerUnreachable("its node is away")
        return listen(bell)

    monkeypatch.setattr(listening, "listen", refuse)
    waiting = kind(reader._context, reader._executor)
    run(reader, waiting.wait(before, 0.01))
    run(reader, waiting.close())


def test_start_of_a_tail_is_checked(topic: Topic, subtests: pytest.Subtests):
    bad: Any
    for bad in ["x", "-", "+", 5, None, "(1-0"]:
        with subtests.test(bad=bad), pytest.raises(InvalidInput, match="start"):
            next(iter(topic.tail(bad, wait=0)))


def test_tail_skips_records_for_a_single_group(make: Make):
    topic: Any = make(shards=1)
    group = topic.group("billing")
    topic.publish_many([NewRecord(number) for number in range(20)])
    for record in group.poll("a", 20):
        group.bury(record, "a")
    letters = group.dead()
    topic.trim(max_length=0, approximate=False)
    assert group.requeue_dead(letters) == 20
    topic.publish("for all")
    assert [record.payload for record in topic.tail("0", wait=0)] == ["for all"]


def test_why_says_where_a_record_is_and_what_each_group_did_with_it(numbered: Topic):
    mail = numbered.group("mail", start="0")
    mail.poll("m-1", 2)
    mail.ack("1-0")
    assert "group mail is past it" in numbered.why("1-0")
    assert "group mail has not acked it: m-1 received it " in numbered.why("2-0")
    assert numbered.why("3-0") == "3-0 is in topic orders: group mail has not received it yet"
    assert numbered.why("9-9").startswith("9-9 is not in topic orders: ")


def test_why_finds_records_in_every_shard(make: Make):
    topic = make(shards=3)
    for key in "abcdef":
        sent = topic.publish(key, key=key)
        assert topic.why(sent.id).endswith(": it has no group")
        later = topic.publish(key, key=key, delay=3600)
        assert f"{later.id} is not due until " in topic.why(later.id)
