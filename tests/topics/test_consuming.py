"""What a consumer of a topic does, on each face, with plain handlers and async ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from delayq import InvalidInput, NewRecord, Record, Reject, RetryAfter, Topic, TopicConsumer, aio, backoff
from delayq.errors import UnknownGroup
from delayq.group import REQUEUED
from delayq.topics.keys import TopicKeys
from tests.topics.conftest import Awaited, Make, Now
from tests.waiting import eventually

Handler = Callable[[Record], Any]
Consume = Callable[..., Any]

MINUTE_MS = 60_000
AFTER = "4102444800000-0"  # the id of a record after any that the server makes


@pytest.fixture
def consume(kind: str) -> Consume:
    """``consume(group, handler, **options)``: a consumer; on the async face, every second kind awaits its handler."""
    is_async = kind in {"aio-8.2", "aio-resp3", "aio-shards"}

    def consume(group: Any, handler: Handler, **options: Any) -> Any:
        async def handle(record: Record) -> Any:
            return handler(record)

        given: dict[str, Any] = {"backoff": backoff.fixed(0.01)} | options
        if not isinstance(group, Awaited):
            return TopicConsumer(group, handler, **given)
        return Awaited(aio.TopicConsumer(group.target, handle if is_async else handler, **given), group.runner)

    return consume


def stop_soon(consumer: Any) -> None:
    """Stop a consumer, from within its handler."""
    if isinstance(consumer, Awaited):
        asyncio.run_coroutine_threadsafe(consumer.target.stop(), consumer.runner.get_loop())
    else:
        consumer.stop()


def publish(topic: Topic, count: int) -> None:
    topic.publish_many([NewRecord(number) for number in range(count)])


def stream(shard: int = 0) -> str:
    return TopicKeys.of_topic("delayq", "orders", shard).stream


def leave_behind(client: redis.Redis, group: Any, count: int, member: str = "dead") -> None:
    """Let a member of a group take records, and do nothing more for a minute."""
    records = group.poll(member, count)
    assert len(records) == count
    for record in records:
        client.xclaim(stream(record.shard), group.name, member, 0, [record.id], idle=MINUTE_MS, justid=True)


def test_records_are_handled_in_their_order_and_acked(make: Make, consume: Consume):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 700)
    seen: list[int] = []
    consumer = consume(group, lambda record: seen.append(record.payload), concurrency=1)
    assert consumer.drain() == 700
    assert seen == list(range(700))
    assert (group.unacked(), group.lag(), consumer.handled, consumer.failed) == ([], 0, 700, 0)


def test_each_group_handles_every_record(topic: Topic, consume: Consume):
    groups = [topic.group(name) for name in ("billing", "mail")]
    publish(topic, 50)
    for group in groups:
        seen: list[int] = []
        assert consume(group, lambda record, seen=seen: seen.append(record.payload)).drain() == 50
        assert sorted(seen) == list(range(50))


def test_record_that_failed_waits_while_others_are_handled(make: Make, consume: Consume):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 5)
    seen: list[tuple[int, int]] = []

    def handle(record: Record) -> None:
        seen.append((record.payload, record.deliveries))
        if seen == [(0, 1)]:
            raise ValueError("not yet")

    consumer = consume(group, handle, concurrency=1, backoff=backoff.fixed(0.3))
    assert consumer.run(max_records=6) == 6
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1), (2, 1), (3, 1), (4, 1)]
    assert seen.index((0, 2)) > 1
    assert (consumer.failed, group.unacked()) == (1, [])


@pytest.mark.parametrize("verdict", [False, ValueError("boom"), RetryAfter(0.01), SystemExit(3)], ids=repr)
def test_failed_record_is_handled_again(topic: Topic, consume: Consume, verdict: Any):
    group = topic.group("billing")
    publish(topic, 1)
    deliveries: list[int] = []

    def handle(record: Record) -> Any:
        deliveries.append(record.deliveries)
        if len(deliveries) == 3:
            return True
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    assert consume(group, handle).run(max_records=3) == 3
    assert (deliveries, group.unacked(), group.dead()) == ([1, 2, 3], [], [])


def test_record_that_fails_too_often_is_a_dead_letter_of_its_group_alone(topic: Topic, consume: Consume):
    group, other = topic.group("billing", max_deliveries=2), topic.group("mail", max_deliveries=2)
    publish(topic, 3)

    def handle(record: Record) -> None:
        if record.payload == 1:
            raise ValueError(f"delivery {record.deliveries}")

    consumer = consume(group, handle)
    assert consumer.run(max_records=4) == 4
    (letter,) = group.dead()
    assert (letter.record.payload, letter.deliveries, letter.reason) == (1, 2, "deliveries-exhausted")
    assert letter.errors == ["ValueError: delivery 1", "ValueError: delivery 2"]
    assert (group.unacked(), other.dead(), other.lag()) == ([], [], 3)


def test_rejected_record_is_a_dead_letter_at_once(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 1)

    def handle(_: Record) -> None:
        raise Reject("no such customer")

    assert consume(group, handle).drain() == 1
    (letter,) = group.dead()
    assert (letter.reason, letter.deliveries, letter.errors) == ("no such customer", 1, ["Reject: no such customer"])


def test_records_of_a_dead_member_are_taken_over_at_the_beginning(topic: Topic, consume: Consume, client: redis.Redis):
    group = topic.group("billing", max_deliveries=3)
    publish(topic, 30)
    leave_behind(client, group, 20)
    seen: list[tuple[int, int]] = []
    assert consume(group, lambda record: seen.append((record.payload, record.deliveries))).drain() == 30
    assert sorted(number for number, _ in seen) == list(range(30))
    assert [deliveries for _, deliveries in sorted(seen, key=lambda each: each[1])] == [1] * 10 + [2] * 20
    assert group.unacked() == []


def test_records_of_a_dead_member_are_taken_over_while_a_consumer_runs(
    make: Make, consume: Consume, client: redis.Redis
):
    group = make(shards=1).group("billing")
    client.xadd(stream(), {"number": "0"})
    seen: list[tuple[str, int]] = []

    def handle(record: Record) -> None:
        if not seen:
            with client.pipeline() as pipe:  # in one step: else the consumer itself may be handed it
                pipe.xadd(stream(), {"number": "1"}, id=AFTER)
                pipe.xreadgroup("billing", "dead", {stream(): ">"})
                pipe.xclaim(stream(), "billing", "dead", 0, [AFTER], idle=MINUTE_MS, justid=True)
                pipe.execute()
        seen.append((record.payload["number"], record.deliveries))

    assert consume(group, handle, ack_timeout=1).run(max_records=2) == 2
    assert seen == [("0", 1), ("1", 2)]


def test_record_that_has_killed_its_consumers_is_not_handled_again(topic: Topic, consume: Consume, client: redis.Redis):
    group = topic.group("billing", max_deliveries=1)
    publish(topic, 1)
    leave_behind(client, group, 1)
    assert consume(group, lambda _: None).drain() == 0
    assert [letter.reason for letter in group.dead()] == ["deliveries-exhausted"]


def test_consumer_that_comes_back_handles_first_what_it_had_not_acked(make: Make, consume: Consume):
    topic = make(shards=1)
    group = topic.group("billing", max_deliveries=2)
    publish(topic, 5)
    group.poll("me", 3)
    assert consume(group, lambda _: None, name="you").run(max_records=1) == 1
    seen: list[tuple[int, int]] = []
    consumer = consume(group, lambda record: seen.append((record.payload, record.deliveries)), name="me", concurrency=1)
    assert consumer.drain() == 4
    assert seen == [(0, 2), (1, 2), (2, 2), (4, 1)]
    assert {each.name: each.unacked for each in group.consumers()} == {"me": 0, "you": 0}


def test_record_that_kills_a_consumer_of_one_name_is_a_dead_letter_in_the_end(topic: Topic, consume: Consume):
    group = topic.group("billing", max_deliveries=1)
    publish(topic, 1)
    group.poll("me")
    consumer = consume(group, lambda _: None, name="me")
    assert (consumer.drain(), consumer.handled, consumer.failed) == (0, 0, 0)
    assert [letter.reason for letter in group.dead()] == ["deliveries-exhausted"]


def test_what_was_not_begun_is_handed_back_and_counts_no_delivery(make: Make, consume: Consume):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 600)
    begun: list[int] = []

    def handle(record: Record) -> None:
        begun.append(record.payload)
        if len(begun) == 20:
            stop_soon(consumer)
        if len(begun) > 20:  # until the consumer has noticed
            time.sleep(0.01)

    consumer = consume(group, handle, concurrency=1)
    handled = consumer.run()
    left = group.unacked(count=1000)
    assert left
    assert {(each.consumer, each.deliveries) for each in left} == {(REQUEUED, 0)}
    assert handled + len(left) + group.lag() == 600
    seen: list[tuple[int, int]] = []
    consume(group, lambda record: seen.append((record.payload, record.deliveries))).drain()
    assert sorted(begun + [number for number, _ in seen]) == list(range(600))
    assert {deliveries for _, deliveries in seen} == {1}


def test_what_waits_for_its_backoff_is_handed_back(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 3)
    assert consume(group, lambda record: record.payload != 1, backoff=backoff.fixed(3600)).drain() == 3
    assert [(each.consumer, each.deliveries) for each in group.unacked()] == [(REQUEUED, 1)]
    seen: list[tuple[int, int]] = []
    assert consume(group, lambda record: seen.append((record.payload, record.deliveries))).drain() == 1
    assert seen == [(1, 2)]


def test_drain_handles_again_what_is_not_to_wait(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 1)

    def handle(record: Record) -> None:
        if record.deliveries < 3:
            raise RetryAfter(0)

    assert consume(group, handle).drain() == 3
    assert group.unacked() == []


def test_delayed_records_are_handled_in_the_order_of_their_times(make: Make, consume: Consume, now: Now):
    topic = make(shards=1)
    group = topic.group("billing")
    for delay in (60, 30, 90):
        topic.publish(delay, delay=delay)
    seen: list[int] = []
    consumer = consume(group, lambda record: seen.append(record.payload), concurrency=1)
    assert consumer.drain() == 0
    now.later(60)
    assert consumer.drain() == 2
    assert seen == [30, 60]


def test_delayed_record_is_handled_while_a_consumer_waits_for_it(make: Make, consume: Consume):
    topic = make(shards=1, clock=str)
    group = topic.group("billing")
    due = [topic.publish(delay, delay=delay).due_at for delay in (0.2, 0.1)]
    seen: list[Record] = []
    assert consume(group, seen.append).run(max_records=2) == 2
    assert [record.payload for record in seen] == [0.1, 0.2]
    assert all(record.published_at >= at for record, at in zip(seen, reversed(due), strict=True) if at)


def test_run_ends_after_so_many_deliveries(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 100)
    seen: list[int] = []
    consumer = consume(group, lambda record: seen.append(record.payload))
    assert consumer.run(max_records=42) == len(seen) == 42
    assert (group.lag(), group.unacked()) == (58, [])
    assert consumer.run(max_records=8) == 8
    assert consumer.handled == 50


def test_drain_handles_what_comes_meanwhile(make: Make, consume: Consume, client: redis.Redis):
    group = make(shards=1).group("billing")
    client.xadd(stream(), {"number": "0"})
    seen: list[str] = []

    def handle(record: Record) -> None:
        seen.append(record.payload["number"])
        if len(seen) < 5:
            client.xadd(stream(), {"number": len(seen)})

    assert consume(group, handle).drain() == 5
    assert seen == ["0", "1", "2", "3", "4"]


def test_consumer_without_a_name_leaves_its_group(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 3)
    consume(group, lambda _: None).drain()
    assert group.consumers() == []


def test_what_a_handler_works_on_stays_young(make: Make, consume: Consume, client: redis.Redis):
    group = make(shards=1).group("billing")
    client.xadd(stream(), {"number": "0"})
    renewed: list[bool] = []
    deliveries: list[int] = []

    def idle() -> int:
        (row,) = client.xpending_range(stream(), "billing", "-", "+", 1)
        return int(row["time_since_delivered"])

    def handle(_: Record) -> None:
        assert eventually(lambda: idle() > 10)
        before = idle()
        renewed.append(eventually(lambda: idle() < before))
        (row,) = client.xpending_range(stream(), "billing", "-", "+", 1)
        deliveries.append(int(row["times_delivered"]))  # it was not taken over, not even by the same consumer

    # On threads, for the event loop that an async handler blocks renews nothing.
    if isinstance(group, Awaited):
        consumer = Awaited(aio.TopicConsumer(group.target, handle, ack_timeout=0.3), group.runner)
        assert consumer.drain() == 1
    else:
        assert consume(group, handle, ack_timeout=0.3).drain() == 1
    assert (renewed, deliveries) == ([True], [1])


def test_record_that_was_trimmed_while_it_waited_is_let_go(make: Make, consume: Consume, client: redis.Redis):
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 1)

    def handle(record: Record) -> bool:
        client.xdel(stream(), record.id)
        client.xadd(stream(), {"number": "1"})
        return bool(record.payload)

    assert consume(group, handle).run(max_records=2) == 2
    assert len(group.unacked()) <= 1
    consume(group, lambda _: None).drain()
    assert group.unacked() == []


def test_backoff_that_raises_does_not_end_the_consumer(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 2)
    assert consume(group, lambda record: record.payload == 1, backoff=lambda _: 1 / 0).drain() == 2
    assert [each.deliveries for each in group.unacked()] == [1]


def test_group_that_is_gone_ends_the_consumer(topic: Topic, consume: Consume, client: redis.Redis):
    group = topic.group("billing")
    publish(topic, 1)
    with pytest.raises(UnknownGroup):
        consume(group, lambda record: client.xgroup_destroy(stream(record.shard), "billing")).run()
    topic.group("mail").destroy()
    with pytest.raises(UnknownGroup):
        consume(group, lambda _: None).drain()


def generator(_: Record) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"handler": 5}, "handler"),
        ({"handler": generator}, "generator"),
        ({"concurrency": 0}, "concurrency"),
        ({"ack_timeout": 0}, "ack_timeout"),
        ({"ack_timeout": 90_000}, "ack_timeout"),
        ({"shutdown_timeout": -1}, "shutdown_timeout"),
        ({"backoff": 5}, "backoff"),
        ({"name": "a\nb"}, "consumer name"),
        ({"name": ""}, "consumer name"),
    ],
    ids=["handler", "generator", "concurrency", "instant", "days", "negative", "backoff", "lines", "nothing"],
)
def test_bad_argument_is_refused(topic: Topic, consume: Consume, options: dict[str, Any], named: str):
    kind: Any = aio.TopicConsumer if isinstance(topic, Awaited) else TopicConsumer
    group: Any = topic.group("billing")
    with pytest.raises(InvalidInput, match=named):
        kind(getattr(group, "target", group), **{"handler": lambda _: None} | options)
    with pytest.raises(InvalidInput, match="is no Group"):
        kind("billing", lambda _: None)
    with pytest.raises(InvalidInput, match="max_records"):
        consume(group, lambda _: None).run(max_records=0)
