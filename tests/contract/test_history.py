"""What happened to a message: its history, from the ledger."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from delayq import Event, Queue, backoff
from delayq.errors import InvalidName, KeyOverwritten
from delayq.model.units import from_ms
from tests.contract.conftest import Calls, Make, Now, intercept
from tests.harness.ledgers import append, entry

AT = 1_700_000_000_000


@pytest.fixture
def shards(kind: str) -> int:
    return 3 if kind.endswith("shards") else 1


@pytest.fixture
def recorded(queue: Queue) -> Queue:
    """A queue that Redis has recorded, with its number of shards."""
    queue.send("x", id="first", delay=60)
    return queue


def test_history_lists_each_transition_oldest_first(recorded: Queue, client: redis.Redis, shards: int):
    append(client, "a", "sent", AT, due=AT + 1000, shards=shards)
    append(client, "b", "sent", AT, due=AT + 1000, shards=shards)
    append(client, "a", "promoted", AT + 1003, due=AT + 1000, late=3, shards=shards)
    append(client, "a", "delivered", AT + 1004, attempt=1, due=AT + 1000, late=4, consumer="web-1", shards=shards)
    append(client, "a", "nacked", AT + 2000, attempt=1, due=AT + 3000, reason="ValueError: no", shards=shards)
    last = append(client, "a", "acked", AT + 4000, attempt=2, shards=shards)
    events = recorded.history("a")
    assert [(each.event, each.at) for each in events] == [
        ("sent", from_ms(AT)),
        ("promoted", from_ms(AT + 1003)),
        ("delivered", from_ms(AT + 1004)),
        ("nacked", from_ms(AT + 2000)),
        ("acked", from_ms(AT + 4000)),
    ]
    sent, promoted, delivered, nacked, acked = events
    assert (sent.due_at, sent.attempt, sent.late, sent.consumer, sent.reason) == (from_ms(AT + 1000), *[None] * 4)
    assert (promoted.late, promoted.attempt) == (0.003, None)
    assert (delivered.attempt, delivered.late, delivered.consumer) == (1, 0.004, "web-1")
    assert (nacked.due_at, nacked.reason) == (from_ms(AT + 3000), "ValueError: no")
    assert acked == Event(id="a", event="acked", at=from_ms(AT + 4000), attempt=2, entry=last)
    assert [each.event for each in recorded.history("b")] == ["sent"]


def test_queue_without_a_ledger_has_no_history(recorded: Queue):
    assert recorded.history("first") == []
    assert recorded.history("nobody") == []


def test_unused_queue_has_no_history(make: Make, client: redis.Redis):
    assert make("unheard-of").history("a") == []
    assert client.keys() == []


def test_id_that_no_message_can_have_is_refused(queue: Queue, subtests: pytest.Subtests):
    id: Any
    for id in ["", "a\n", 7]:
        with subtests.test(id=id), pytest.raises(InvalidName):
            queue.history(id)


STRANGE: dict[str, dict[Any, Any]] = {
    "other-fields": {"id": "a", "event": "sent"},
    "no-fields-of-ours": {"order": "7"},
    "one-field": {"id": "a"},
    "other-order": dict(reversed(entry("a", "sent", AT).items())),
    "id-elsewhere": {"x": "1"} | entry("a", "sent", AT),
    "at-no-number": entry("a", "sent", AT) | {"at": "yesterday"},
    "at-missing": entry("a", "sent", AT) | {"at": ""},
    "at-negative": entry("a", "sent", -1),
    "at-beyond-time": entry("a", "sent", 10**15),
    "at-endless": entry("a", "sent", AT) | {"at": "inf"},
    "at-nan": entry("a", "sent", AT) | {"at": "nan"},
    "at-digits": entry("a", "sent", AT) | {"at": "1" * 5000},
    "attempt": entry("a", "sent", AT, attempt="first"),
    "attempt-endless": entry("a", "sent", AT, attempt="inf"),
    "due": entry("a", "sent", AT, due="\u0661"),
    "late": entry("a", "delivered", AT, late="1e3"),
    "late-endless": entry("a", "delivered", AT, late="-inf"),
    "event-empty": entry("a", "", AT),
    "event-of-bytes": entry("a", "sent", AT) | {"event": b"\xff\x1b[2J"},
}


def test_entries_of_other_programs_are_skipped(
    recorded: Queue, client: redis.Redis, shards: int, subtests: pytest.Subtests
):
    for name, fields in STRANGE.items():
        with subtests.test(name):
            client.delete(recorded._context.shard("a").keys.events)
            append(client, "a", "sent", AT, shards=shards)
            client.xadd(recorded._context.shard("a").keys.events, fields)
            append(client, "a", "acked", AT + 1, shards=shards)
            assert [each.event for each in recorded.history("a")] == ["sent", "acked"]


def test_fields_added_by_a_newer_delayq_are_ignored(recorded: Queue, client: redis.Redis):
    client.xadd(recorded._context.shard("a").keys.events, entry("a", "teleported", AT) | {"to": "elsewhere"})
    assert [each.event for each in recorded.history("a")] == ["teleported"]


def test_invalid_text_is_shown_as_well_as_possible(recorded: Queue, client: redis.Redis):
    strange = entry("a", "nacked", AT, due="inf") | {"reason": b"\xff no", "consumer": b"\xfe"}
    client.xadd(recorded._context.shard("a").keys.events, strange)
    (event,) = recorded.history("a")
    assert (event.reason, event.consumer) == ("\ufffd no", "\ufffd")
    assert event.due_at == from_ms(float("inf"))


def test_key_of_the_wrong_type_is_named(recorded: Queue, client: redis.Redis):
    client.set(recorded._context.shard("a").keys.events, "mine")
    with pytest.raises(KeyOverwritten):
        recorded.history("a")


def test_whole_ledger_is_read_while_it_grows(recorded: Queue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    key = recorded._context.shard("a").keys.events
    ours = (0, 499, 500, 501, 1002, 1200)
    for number in range(1201):
        client.xadd(key, entry("a" if number in ours else f"b{number}", "sent", AT + number))
    trips: list[Calls] = []

    def grow(calls: Calls) -> None:
        trips.append(calls)
        for number in range(501):
            client.xadd(key, entry("c", "sent", AT + number))

    intercept(recorded, monkeypatch, after=grow)
    assert [each.at for each in recorded.history("a")] == [from_ms(AT + number) for number in ours]
    assert [len(calls) for calls in trips] == [1, 1, 1]
    assert [each.event for each in recorded.history("c")] == ["sent"] * 3 * 501


def test_history_covers_the_whole_life_of_a_message(make: Make, now: Now):
    queue = make(backoff=backoff.fixed(5), max_retries=1)
    queue.configure(events=True)
    queue.send("x", id="a", delay=10)
    queue.send("x", id="b", delay=3600)
    assert queue.reschedule("a", delay=20) == "rescheduled"
    now.later(21)
    (message,) = queue.receive()
    message.release()
    (message,) = queue.receive()
    message.nack(error="broken")
    now.later(6)
    (message,) = queue.receive()
    message.reject("unwanted")
    assert queue.dead.requeue("a") == 1
    (message,) = queue.receive(lease=1)
    now.later(2)
    (message,) = queue.receive()
    message.ack()
    assert queue.cancel("b") == "cancelled"
    events = [
        (each.event, (each.at.timestamp() * 1000 - AT) / 1000, each.attempt, each.late, each.reason)
        for each in queue.history("a")
    ]
    assert events == [
        ("sent", 0, None, None, None),
        ("rescheduled", 0, None, None, None),
        ("promoted", 21, None, 1, None),
        ("delivered", 21, 1, 1, None),
        ("released", 21, 1, None, None),
        ("delivered", 21, 1, 1, None),
        ("nacked", 21, 1, None, "broken"),
        ("delivered", 27, 2, 1, None),
        ("died", 27, 2, None, "unwanted"),
        ("requeued", 27, None, None, None),
        ("promoted", 27, None, 0, None),
        ("delivered", 27, 3, 0, None),
        ("lease_lost", 29, 3, None, None),
        ("delivered", 29, 4, 1, None),
        ("acked", 29, 4, None, None),
    ]
    assert queue.history("a")[6].due_at == from_ms(AT + 26_000)
    assert [each.event for each in queue.history("b")] == ["sent", "cancelled"]
    assert queue.get("a") is None
    assert queue.events.length() == len(events) + 2
