"""The ledger as a topic: `queue.events`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from delayq import Event, Queue, TopicConsumer, aio
from delayq.errors import InvalidInput, ShardsMismatch
from delayq.model.units import from_ms
from tests.contract.conftest import Make, examine
from tests.harness.awaiting import Awaited
from tests.harness.ledgers import append, entry

AT = 1_700_000_000_000


@pytest.fixture
def shards(kind: str) -> int:
    return 3 if kind.endswith("shards") else 1


@pytest.fixture
def written(queue: Queue, client: redis.Redis, shards: int) -> Queue:
    """A queue whose ledger holds nine entries."""
    queue.send("x", id="first", delay=60)
    for number in range(3):
        for at, event in enumerate(("sent", "delivered", "acked")):
            append(client, f"m{number}", event, AT + 10 * number + at, shards=shards)
    return queue


def events_of(records: Any) -> list[tuple[str, str]]:
    return sorted((event.id, event.event) for event in map(Event.of, records))


ALL = sorted((f"m{number}", event) for number in range(3) for event in ("sent", "delivered", "acked"))


def test_ledger_can_be_read_as_a_topic(written: Queue):
    records = written.events.range()
    assert events_of(records) == ALL
    assert written.events.length() == 9
    assert events_of(written.events.range(reverse=True)) == ALL
    assert events_of(written.events.tail("0", wait=0)) == ALL
    assert {record.topic for record in records} == {"jobs:events"}
    assert records[0].payload["event"] in ("sent", "delivered", "acked")


def test_ledger_records_are_events(written: Queue):
    record = next(each for each in written.events.range() if each.payload["id"] == "m1")
    assert Event.of(record) == written.history("m1")[0]
    assert Event.of(record) == Event(id="m1", event="sent", at=from_ms(AT + 10), entry=record.id)


def test_record_of_another_program_is_not_an_event(written: Queue, client: redis.Redis):
    client.xadd(written._context.shards[0].keys.events, {"order": "7"})
    strange = next(each for each in written.events.range() if "order" in each.payload)
    with pytest.raises(InvalidInput, match="not a ledger entry"):
        Event.of(strange)


def test_id_that_is_not_valid_text_is_shown_as_elsewhere(written: Queue, client: redis.Redis):
    client.xadd(written._context.shards[0].keys.events, entry("a", "sent", AT) | {"id": b"\xfe"})
    strange = next(each for each in written.events.range() if each.payload["id"] == "\ufffd")
    assert Event.of(strange).id == "\udcfe"


def test_groups_can_follow_the_ledger(written: Queue, client: redis.Redis, shards: int):
    group: Any = written.events.group("audit", start="0")
    records = group.poll("a", 100)
    assert events_of(records) == ALL
    assert group.ack(records) == 9
    append(client, "m9", "sent", AT, shards=shards)
    assert events_of(group.poll("a", 100, wait=120)) == [("m9", "sent")]
    assert [(each.name, each.unacked, each.lag) for each in written.events.groups()] == [("audit", 1, 0)]
    assert group.poll("a", wait=0.01) == []
    assert [each for each in examine(written).findings if each.kind != "persistence"] == []


def test_consumer_can_handle_the_ledger(written: Queue):
    group: Any = written.events.group("audit", start="0")
    handled: list[Any] = []
    if isinstance(group, Awaited):

        async def handle(record: Any) -> None:
            await asyncio.sleep(0)
            handled.append(record)

        assert group.run(aio.TopicConsumer(group.target, handle).drain()) == 9
    else:
        assert TopicConsumer(group, handled.append).drain() == 9
    assert events_of(handled) == ALL
    assert group.lag() == 0


def test_ledger_can_be_trimmed_as_a_topic(written: Queue):
    group: Any = written.events.group("audit", start="0")
    assert written.events.trim_acked().dropped == 0
    group.ack(group.poll("a", 100))
    assert written.events.trim_acked().dropped == 9
    assert written.events.length() == 0


def test_publishing_to_a_ledger_is_refused(written: Queue, subtests: pytest.Subtests):
    for call in ["publish", "publish_many"]:
        with subtests.test(call=call):
            with pytest.raises(InvalidInput, match="only queue jobs itself writes its ledger"):
                getattr(written.events, call)("x")
            assert written.events.length() == 9


def test_ledger_has_the_shards_of_its_queue(make: Make, client: redis.Redis):
    make("wide", shards=4).events.group("audit")
    assert make("wide", shards=None).events.length() == 0
    with pytest.raises(ShardsMismatch):
        make("wide", shards=2).events.length()
    assert make("wide", shards=4).send("x", delay=60).created
    assert len(client.keys("delayq:{wide*}:events")) == 4


def test_ledger_of_an_unused_queue_is_empty(make: Make, client: redis.Redis):
    assert make("unheard-of").events.range() == []
    assert make("unheard-of").events.length() == 0
    assert client.keys() == []


def test_closing_the_ledger_leaves_its_queue_open(written: Queue):
    group: Any = written.events.group("audit")
    assert group.poll("a", wait=0.01) == []
    written.events.close()
    assert written.stats().pending == 1
    assert group.poll("a", wait=0.01) == []
