"""An idle consumer that wakes for a message gets its envelope in the same round trip as the claim."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Queue
from delayq.operations import claim as claim_module
from tests.harness.waiting import eventually


class Trips:
    """Counts the round trips of a queue and names their calls."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[list[str]] = []
        run = queue._executor.run

        def note(calls: Sequence[Any], repeat: bool = True) -> Any:
            self.seen.append([call.script.name if call.script else call.args[0] for call in calls])
            return run(calls, repeat)

        monkeypatch.setattr(queue._executor, "run", note)


def claim(queue: Queue, *expected: str, limit: int = 10) -> claim_module.Batch:
    steps = claim_module.claim(queue._context, partial(Message, queue), limit, 30_000, expected=expected)
    return queue._executor.execute(steps)


def next_one(queue: Queue, following: claim_module.NextMessages) -> Message:
    """Claim one message, as one queue of several does."""
    steps = claim_module.claim(queue._context, partial(Message, queue), 1, 30_000, following=following)
    (message,) = queue._executor.execute(steps).messages
    assert isinstance(message, Message)
    return message


@pytest.fixture
def queue(any_client: redis.Redis) -> Queue:
    queue = Queue("lone", redis=any_client)
    queue.stats()
    return queue


def test_expected_message_takes_one_round_trip(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send("a", id="a")
    trips = Trips(queue, monkeypatch)
    (message,) = claim(queue, "a").messages
    assert (message.id, message.payload, message.attempt) == ("a", "a", 1)
    assert trips.seen == [["pending_to_ready", "ready_to_unack", "MGET"]]
    message.ack()


@pytest.mark.parametrize("sent", [["b"], ["a", "b"]])
def test_other_messages_are_fetched_as_usual(queue: Queue, monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> None:
    for name in sent:
        queue.send(name, id=name)
    trips = Trips(queue, monkeypatch)
    messages = claim(queue, "a").messages
    assert [(message.id, message.payload) for message in messages] == [(name, name) for name in sent]
    assert trips.seen == [["pending_to_ready", "ready_to_unack", "MGET"], ["MGET"]]


def test_expected_message_taken_by_another_consumer_is_not_returned(queue: Queue) -> None:
    queue.send("a", id="a")
    (message,) = queue.receive()
    assert claim(queue, "a") == claim_module.Batch([], 0, limit=10)
    message.ack()
    assert claim(queue, "a") == claim_module.Batch([], 0, limit=10)


def test_expected_message_without_a_payload_becomes_a_dead_letter(queue: Queue) -> None:
    queue.send("a", id="a")
    queue._executor.client.delete("delayq:{lone}:msg:a")
    assert claim(queue, "a")[:2] == ([], 1)
    (dead,) = queue.dead.list()
    assert (dead.id, dead.reason) == ("a", "payload-missing")


def test_replaced_message_comes_with_its_new_payload(queue: Queue) -> None:
    queue.send("old", id="a", delay=60)
    queue.send("new", id="a", on_conflict="replace")
    assert [message.payload for message in claim(queue, "a").messages] == ["new"]


def test_expected_retry_has_its_attempt_number(queue: Queue) -> None:
    queue.send("a", id="a")
    (message,) = queue.receive()
    message.nack(delay=0)
    (message,) = claim(queue, "a").messages
    assert (message.payload, message.attempt) == ("a", 2)


def test_expectation_from_before_the_shards_were_known_does_no_harm(redis_client: redis.Redis) -> None:
    Queue("wide", redis=redis_client, shards=3).send("a", id="a")
    queue = Queue("wide", redis=redis_client, shards=None)
    assert [message.payload for message in claim(queue, "a").messages] == ["a"]


@pytest.mark.parametrize("shards", [1, 3])
def test_idle_consumer_handles_a_lone_message_after_one_trip(
    redis_client: redis.Redis, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000.0]
    queue = Queue("lone", redis=redis_client, shards=shards, clock=lambda: now[0])
    handled: list[Message] = []
    consumer = Consumer(queue, handled.append)
    consumer.start()
    queue.send("first", delay=0.3)
    assert eventually(lambda: bool(redis_client.keys("delayq:{lone*}:timer")))
    assert eventually(lambda: redis_client.info("clients")["blocked_clients"] == shards)  # it sleeps
    trips = Trips(queue, monkeypatch)
    now[0] += 300
    assert eventually(lambda: len(handled) == 1)
    consumer.stop()
    assert not any(trip[0] == "MGET" for trip in trips.seen), trips.seen
    assert any({"ready_to_unack", "MGET"} <= set(trip) for trip in trips.seen), trips.seen


CLAIM = ["pending_to_ready", "ready_to_unack"]


def test_claims_of_one_message_expect_the_next_one(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        queue.send(name, id=name)
    trips, following = Trips(queue, monkeypatch), claim_module.NextMessages()
    assert [next_one(queue, following).payload for _ in "abc"] == ["a", "b", "c"]
    assert trips.seen == [[*CLAIM, "ZRANGE"], ["MGET"], [*CLAIM, "MGET", "ZRANGE"], [*CLAIM, "MGET", "ZRANGE"]]


def test_consumer_whose_next_message_was_taken_stops_expecting_for_a_while(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number:02}" for number in range(12)]
    for name in names:
        queue.send(name, id=name)
    following = claim_module.NextMessages()
    assert next_one(queue, following).id == "00"
    assert queue.receive(1)[0].id == "01"  # another consumer
    trips = Trips(queue, monkeypatch)
    assert [next_one(queue, following).payload for _ in range(10)] == names[2:]
    wrong, alone = [[*CLAIM, "MGET", "ZRANGE"], ["MGET"]], [[*CLAIM], ["MGET"]]
    assert trips.seen == [*wrong, *7 * alone, [*CLAIM, "ZRANGE"], ["MGET"], [*CLAIM, "MGET", "ZRANGE"]]


def test_next_message_that_is_replaced_or_cancelled_is_not_run(queue: Queue) -> None:
    for name in "abc":
        queue.send(name, id=name)
    following = claim_module.NextMessages()
    next_one(queue, following)
    queue.cancel("b")
    queue.send("new", id="c", on_conflict="replace")
    assert (next_one(queue, following).payload, queue.stats().dead) == ("new", 0)


def test_large_message_is_not_expected(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send("a", id="a")
    queue.send("b" * 900_000, id="b")
    trips, following = Trips(queue, monkeypatch), claim_module.NextMessages()
    next_one(queue, following)
    assert len(next_one(queue, following).payload) == 900_000
    assert [*CLAIM, "ZRANGE"] in trips.seen[2:]
