"""Ledger entries that hold several events: written by calls that note several, read one event at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from delayq import Consumer, Event, Outgoing, Queue, Reject, TopicConsumer, aio
from delayq.errors import InvalidInput
from delayq.model import packed_events
from delayq.model.event import read
from delayq.model.positions import number_of
from tests.harness import bookkeeping
from tests.harness.servers import RedisServer

KEY, META = "delayq:{work}:events", "delayq:{work}:meta"


@pytest.fixture
def queue(any_server: RedisServer) -> Iterator[Queue]:
    with Queue("work", url=any_server.url) as queue:
        queue.configure(events=True)
        yield queue


def entries(queue: Queue) -> int:
    client: Any = queue._executor.client
    return int(client.xlen(KEY))


def send(queue: Queue, count: int, name: str = "m") -> None:
    queue.send_many([Outgoing(n, id=f"{name}{n}", delay=60) for n in range(count)])


def events(queue: Queue) -> list[tuple[str, str]]:
    return [(event.id, event.event) for event in map(Event.of, queue.events.range(count=100_000))]


def test_events_of_a_call_share_entries_and_are_read_one_by_one(queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(250)])
    assert Consumer(queue, lambda _: None).drain() == 250
    assert bookkeeping.check(queue) == dict.fromkeys(("sent", "promoted", "delivered", "acked"), 250)
    assert entries(queue) < 100
    assert queue.events.length() == 1000
    found = queue.history("m7")
    assert [each.event for each in found] == ["sent", "promoted", "delivered", "acked"]
    assert [each.attempt for each in found] == [None, None, 1, 1]
    assert [each.late is not None for each in found] == [False, True, True, False]
    assert queue.history("m") == []


def test_call_that_notes_one_event_writes_an_entry_as_before(queue: Queue):
    queue.send("x", id="a")
    client: Any = queue._executor.client
    ((_, fields),) = client.xrange(KEY)
    assert [name.decode() for name in fields] == bookkeeping.FIELDS


@pytest.mark.parametrize("reverse", [False, True])
def test_pages_of_any_size_return_each_event_once(queue: Queue, reverse: bool):
    for part in range(3):
        send(queue, 130, f"{part}-")
        queue.send("x", id=f"lone{part}", delay=60)
    found: list[Any] = []
    at = "+" if reverse else "-"
    while page := queue.events.range("-" if reverse else at, at if reverse else "+", count=7, reverse=reverse):
        found += page
        at = f"({page[-1].id}"
    assert len(found) == len({each.id for each in found}) == 393
    assert Counter(Event.of(each).id for each in found).most_common(1)[0][1] == 1
    middle = found[150]
    assert [each.id for each in queue.events.range(start=middle.id, end=middle.id)] == [middle.id]
    assert [each.id for each in queue.events.tail(middle.id, wait=0)][:1] != [middle.id]


@pytest.mark.parametrize("lone", [0, 40, 3000])
def test_limit_counts_events_and_keeps_at_least_as_many(queue: Queue, lone: int):
    queue.configure(events=1000)
    for part in range(4):
        for n in range(lone):
            queue.send("x", id=f"{part}/{n}", delay=60)
        for batch in range(8):
            send(queue, 150, f"{part}.{batch}-")
        assert 1000 <= queue.events.length() <= 1500
        assert queue.events.length() == len(events(queue))
    last = events(queue)[-1]
    assert last == ("3.7-149", "sent")


def test_length_counts_what_was_noted_before_entries_held_several(queue: Queue):
    client: Any = queue._executor.client
    client.hdel(META, "needs")
    send(queue, 50, "old")
    assert entries(queue) == 50
    queue.configure(events=True)
    send(queue, 150, "new")
    assert entries(queue) == 52
    assert queue.events.length() == 200
    assert [name for name, _ in events(queue)] == [f"old{n}" for n in range(50)] + [f"new{n}" for n in range(150)]
    client.xtrim(KEY, maxlen=1, approximate=False)
    assert queue.events.length() == 50


def test_client_from_before_is_stopped_only_once_the_ledger_is_configured_again(any_server: RedisServer):
    with Queue("work", url=any_server.url) as queue:
        client: Any = queue._executor.client
        queue.send("x", id="first", delay=60)
        client.hset(META, "events", 1000)  # as a client from before has done
        send(queue, 20)
        assert (entries(queue), client.hget(META, "needs"), client.hget(META, "format")) == (20, None, b"1")
        with Queue("work", url=any_server.url, events=1000) as other:
            other.send("x", id="other", delay=60)
        assert client.hget(META, "needs") is None
        queue.configure(events=1000)
        assert client.hget(META, "needs") == b"3 0.1.0"
        assert client.hget(META, "format") == b"2"
        send(queue, 20, "again")
        assert entries(queue) == 22


def test_clock_that_was_set_back_makes_single_entries(queue: Queue):
    client: Any = queue._executor.client
    client.xadd(KEY, {"a": "b"}, id=f"{int(time.time() * 1000) + 3_600_000}-0")
    send(queue, 150)
    assert entries(queue) == 151
    assert queue.events.length() == 151
    assert Counter(event for _, event in map(tuple, (event for event in _own(queue))))["sent"] == 150


def _own(queue: Queue) -> Iterator[tuple[str, str]]:
    for record in queue.events.range(count=1000):
        event = read(record.id, record.fields)
        if event:
            yield event.id, event.event


def test_entry_is_acked_with_its_last_event_and_comes_again_after_a_kill(queue: Queue):
    group = queue.events.group("audit", start="0")
    send(queue, 150)
    taken = group.poll("killed", 10)
    assert [Event.of(each).id for each in taken] == [f"m{n}" for n in range(150)]
    assert group.ack(taken[:99]) == 0
    assert len(group.unacked()) == 2
    again = group.fetch_not_acked("other", ack_timeout=0.001)
    time.sleep(0.01)
    again = again or group.fetch_not_acked("other", ack_timeout=0.001)
    assert [Event.of(each).id for each in again] == [f"m{n}" for n in range(150)]
    assert [each.deliveries for each in again] == [2] * 150
    assert group.ack(again[:100]) == 1
    assert len(group.unacked()) == 1
    assert [each.id for each in group.own_unacked("other")] == [each.id for each in again[100:]]
    assert group.ack(again[100:][::-1]) == 1
    assert group.unacked() == []


@pytest.mark.parametrize("is_async", [False, True])
def test_event_that_failed_is_handled_again_alone(queue: Queue, any_server: RedisServer, is_async: bool):
    queue.events.group("audit", start="0")
    send(queue, 150)
    seen: list[str] = []

    def handle(record: Any) -> None:
        event = Event.of(record)
        seen.append(event.id)
        if event.id in ("m7", "m120") and seen.count(event.id) < 3:
            raise ValueError("not yet")

    if is_async:

        async def consume() -> None:
            async with aio.Queue("work", url=any_server.url) as other:

                async def handle_async(record: Any) -> None:
                    handle(record)

                group = await other.events.group("audit")
                await aio.TopicConsumer(group, handle_async, backoff=lambda _: 0.001).run(max_records=6)

        asyncio.run(consume())
    else:
        TopicConsumer(queue.events.group("audit"), handle, backoff=lambda _: 0.001).run(max_records=6)
    assert Counter(seen) == Counter({f"m{n}": 1 for n in range(150)} | {"m7": 3, "m120": 3})
    assert queue.events.group("audit").unacked() == []


def test_rejected_event_makes_its_entry_a_dead_letter_once_the_others_are_handled(queue: Queue):
    group = queue.events.group("audit", start="0")
    send(queue, 5)
    seen: list[str] = []

    def handle(record: Any) -> None:
        seen.append(Event.of(record).id)
        if seen[-1] == "m1" and seen.count("m1") == 1:
            raise Reject("unwanted")

    assert TopicConsumer(group, handle).drain() == 1
    assert seen == [f"m{n}" for n in range(5)]
    (letter,) = group.dead()
    assert letter.reason == "unwanted"
    assert group.requeue_dead(letter) == 1
    TopicConsumer(group, handle).drain()
    assert Counter(seen) == dict.fromkeys((f"m{n}" for n in range(5)), 2)


def test_single_events_cannot_be_deleted(queue: Queue):
    send(queue, 5)
    with pytest.raises(InvalidInput, match="trim it"):
        queue.events.delete(queue.events.range())
    assert queue.events.length() == 5


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@hypothesis.settings(max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(
    st.lists(st.tuples(TEXTS, st.integers(1, 99), st.integers(0, 2_000_000_000_000)), min_size=1, max_size=230),
    st.sampled_from(["sent", "promoted", "delivered", "acked"]),
    TEXTS,
)
def test_what_is_packed_is_unpacked(
    redis_server: RedisServer, rows: list[tuple[str, int, int]], event: str, reason: str
):
    body = """
local ids, attempts, dues = {}, {}, {}
for i = 5, #ARGV, 3 do
  ids[#ids + 1], attempts[#attempts + 1], dues[#dues + 1] = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
end
local note = ledger(KEYS[1], KEYS[2], ARGV[1])
note(ids, ARGV[2], attempts, dues, ARGV[3] == '1', ARGV[4], 'me')"""
    text = files("delayq.lua").joinpath("prelude.lua").read_text("utf-8") + body
    late = event in ("promoted", "delivered")
    with redis_server.client() as client:
        client.delete(KEY, META)
        client.hset(META, mapping={"events": 1000, "needs": "3 0.1.0"})
        words = [word for row in rows for word in row]
        client.eval(text, 2, META, KEY, 1_700_000_000_000, event, "1" if late else "", reason, *words)
        stored: Any = client.xrange(KEY)
        flat = [(entry.decode(), [each for pair in values.items() for each in pair]) for entry, values in stored]
    found = packed_events.events(flat)
    assert len(flat) <= 3 + 3 + len(rows) // 100
    assert [(fields[1].decode(), int(fields[7]), int(fields[9])) for _, fields in found if fields] == rows
    lates = [1_700_000_000_000 - due if late else None for _, _, due in rows]
    assert [int(fields[11]) if fields and fields[11] else None for _, fields in found] == lates
    assert {(fields[3], fields[13], fields[15]) for _, fields in found if fields} == {
        (event.encode(), b"me", reason.encode())
    }
    ids = [number_of(entry) for entry, _ in found]
    assert ids == sorted(set(ids))
