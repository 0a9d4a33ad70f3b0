"""What a consumer of a topic does, in both APIs, with plain and async handlers."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import redis
from structlog.testing import capture_logs

from delayq import InvalidInput, Middleware, NewRecord, Record, Reject, RetryAfter, Topic, TopicConsumer, aio, backoff
from delayq.errors import ReturnedFalse, UnknownGroup
from delayq.operations.topics import settle
from delayq.protocol.topic_commands import REQUEUED
from delayq.protocol.topic_keys import TopicKeys
from delayq.runtime.record_leases import RecordLeases
from delayq.runtime.topic_engine import TopicEngine
from tests.harness.waiting import eventually
from tests.topics.conftest import Awaited, Make, Now

Handler = Callable[[Record], Any]
Consume = Callable[..., Any]

MINUTE_MS = 60_000
AFTER = "4102444800000-0"  # an id greater than any that the server makes


@pytest.fixture
def consume(kind: str) -> Consume:
    """``consume(group, handler, **options)``: a consumer; in the async API, half of the kinds await their handlers."""
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
    """Stop a consumer from within its handler."""
    if isinstance(consumer, Awaited):
        asyncio.run_coroutine_threadsafe(consumer.target.stop(), consumer.runner.get_loop())
    else:
        consumer.stop()


def publish(topic: Topic, count: int) -> None:
    topic.publish_many([NewRecord(number) for number in range(count)])


def stream(shard: int = 0) -> str:
    return TopicKeys.of_topic("delayq", "orders", shard).stream


def leave_behind(client: redis.Redis, group: Any, count: int, member: str = "dead") -> None:
    """Let a consumer of a group take records and then do nothing for a minute."""
    records = group.poll(member, count)
    assert len(records) == count
    for record in records:
        client.xclaim(stream(record.shard), group.name, member, 0, [record.id], idle=MINUTE_MS, justid=True)


def test_records_are_handled_in_order_and_acked(make: Make, consume: Consume):
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


def test_failed_record_waits_while_others_are_handled(make: Make, consume: Consume):
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


def test_payloads_of_records_waiting_for_a_retry_are_not_kept_in_memory(
    topic: Topic, consume: Consume, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.runtime.prefetch.AHEAD_SECONDS", 0.0)  # payloads fetched ahead would be in memory too
    group = topic.group("billing")
    topic.publish_many([NewRecord(bytes(100_000)) for _ in range(100)])
    held: list[int] = []

    def fail(_: Record) -> bool:
        held.append(tracemalloc.get_traced_memory()[0])
        return False

    tracemalloc.start()
    try:
        consume(group, fail, concurrency=1, backoff=backoff.fixed(3600)).drain()
    finally:
        tracemalloc.stop()
    assert len(held) == 100
    assert max(held) - held[0] < 5_000_000  # of 10 million


def test_handler_can_keep_a_failed_record_and_its_payload(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 1)
    seen: list[Record] = []

    def handle(record: Record) -> bool:
        seen.append(record)
        return len(seen) > 1

    consume(group, handle).run(max_records=2)
    assert [(each.payload, each.deliveries) for each in seen] == [(0, 1), (0, 2)]


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


def test_record_that_fails_too_often_becomes_a_dead_letter_of_its_group_only(topic: Topic, consume: Consume):
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


def test_rejected_record_becomes_a_dead_letter_at_once(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 1)

    def handle(_: Record) -> None:
        raise Reject("no such customer")

    assert consume(group, handle).drain() == 1
    (letter,) = group.dead()
    assert (letter.reason, letter.deliveries, letter.errors) == ("no such customer", 1, ["Reject: no such customer"])


def test_records_of_a_dead_consumer_are_taken_over_at_the_start(topic: Topic, consume: Consume, client: redis.Redis):
    group = topic.group("billing", max_deliveries=3)
    publish(topic, 30)
    leave_behind(client, group, 20)
    seen: list[tuple[int, int]] = []
    assert consume(group, lambda record: seen.append((record.payload, record.deliveries))).drain() == 30
    assert sorted(number for number, _ in seen) == list(range(30))
    assert [deliveries for _, deliveries in sorted(seen, key=lambda each: each[1])] == [1] * 10 + [2] * 20
    assert group.unacked() == []


def test_records_of_a_dead_consumer_are_taken_over_by_a_running_consumer(
    make: Make, consume: Consume, client: redis.Redis
):
    group = make(shards=1).group("billing")
    client.xadd(stream(), {"number": "0"})
    seen: list[tuple[str, int]] = []

    def handle(record: Record) -> None:
        if not seen:
            with client.pipeline() as pipe:  # in one step: otherwise the consumer itself may get the record
                pipe.xadd(stream(), {"number": "1"}, id=AFTER)
                pipe.xreadgroup("billing", "dead", {stream(): ">"})
                pipe.xclaim(stream(), "billing", "dead", 0, [AFTER], idle=MINUTE_MS, justid=True)
                pipe.execute()
        seen.append((record.payload["number"], record.deliveries))

    assert consume(group, handle, ack_timeout=1, concurrency=1).run(max_records=2) == 2
    assert [number for number, _ in seen] == ["0", "1"]
    assert seen[1][1] >= 2  # more if the machine was slow


def test_record_that_killed_its_consumers_is_not_handled_again(topic: Topic, consume: Consume, client: redis.Redis):
    group = topic.group("billing", max_deliveries=1)
    publish(topic, 1)
    leave_behind(client, group, 1)
    assert consume(group, lambda _: None).drain() == 0
    assert [letter.reason for letter in group.dead()] == ["deliveries-exhausted"]


def test_restarted_consumer_handles_its_unacked_records_first(make: Make, consume: Consume):
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


def test_record_that_keeps_killing_one_consumer_becomes_a_dead_letter(topic: Topic, consume: Consume):
    group = topic.group("billing", max_deliveries=1)
    publish(topic, 1)
    group.poll("me")
    consumer = consume(group, lambda _: None, name="me")
    assert (consumer.drain(), consumer.handled, consumer.failed) == (0, 0, 0)
    assert [letter.reason for letter in group.dead()] == ["deliveries-exhausted"]


def test_record_of_an_unfinished_handler_is_returned_and_its_delivery_not_counted(topic: Topic, consume: Consume):
    group: Any = topic.group("billing", max_deliveries=1)
    publish(topic, 1)
    may_end = threading.Event()

    def handle(_: Record) -> None:
        stop_soon(consumer)
        may_end.wait(120)

    async def handle_async(_: Record) -> None:
        stop_soon(consumer)
        await asyncio.Event().wait()

    consumer: Any
    if isinstance(group, Awaited):
        consumer = Awaited(aio.TopicConsumer(group.target, handle_async, shutdown_timeout=0), group.runner)
    else:
        consumer = TopicConsumer(group, handle, shutdown_timeout=0)
    with capture_logs() as logged:
        assert consumer.run() == 0
    may_end.set()
    assert [line for line in logged if "handed back" in line["event"]]
    assert [(each.consumer, each.deliveries) for each in group.unacked()] == [(REQUEUED, 0)]
    seen: list[int] = []
    assert consume(group, lambda record: seen.append(record.deliveries)).drain() == 1
    assert (seen, group.dead()) == ([1], [])


def test_second_signal_leaves_running_records_unacked_and_logs_it(topic: Topic):
    group: Any = topic.group("billing")
    publish(topic, 1)
    may_end = threading.Event()
    logged: list[Any]

    def is_waiting() -> bool:
        return any(line["event"] == "waiting for running handlers" for line in logged)

    def handle(_: Record) -> None:
        consumer.take_signal()
        assert eventually(is_waiting)
        consumer.take_signal()
        may_end.wait(120)

    async def handle_async(_: Record) -> None:
        consumer.take_signal()
        assert await asyncio.to_thread(eventually, is_waiting)
        consumer.take_signal()
        await asyncio.Event().wait()

    consumer: Any
    if isinstance(group, Awaited):
        consumer = Awaited(aio.TopicConsumer(group.target, handle_async, name="a"), group.runner)
    else:
        consumer = TopicConsumer(group, handle, name="a")
    with capture_logs() as logged:
        assert consumer.run() == 0
    may_end.set()
    assert consumer.abandoned == 1
    assert [line["records"] for line in logged if "abandoned" in line["event"]] == [1]
    assert [each.consumer for each in group.unacked()] == ["a"]


def test_unstarted_records_are_returned_and_their_delivery_not_counted(
    make: Make, consume: Consume, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.runtime.prefetch.AHEAD_SECONDS", 60.0)
    topic = make(shards=1)
    group = topic.group("billing")
    publish(topic, 600)
    begun: list[int] = []

    def handle(record: Record) -> None:
        begun.append(record.payload)
        if len(begun) == 20:
            stop_soon(consumer)
        if len(begun) > 20:  # until the consumer notices
            time.sleep(0.02)

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


def test_records_waiting_for_a_retry_are_returned_at_the_end(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 3)
    assert consume(group, lambda record: record.payload != 1, backoff=backoff.fixed(3600)).drain() == 3
    assert [(each.consumer, each.deliveries) for each in group.unacked()] == [(REQUEUED, 1)]
    seen: list[tuple[int, int]] = []
    assert consume(group, lambda record: seen.append((record.payload, record.deliveries))).drain() == 1
    assert seen == [(1, 2)]


def test_delayed_record_with_a_damaged_envelope_becomes_a_dead_letter(
    make: Make, consume: Consume, now: Now, client: redis.Redis
):
    topic = make(shards=1)
    group = topic.group("billing")
    for number in range(3):
        topic.publish(number, delay=1 + number, id=f"r{number}")
    client.set("delayq:{orders}:topic:msg:r0", b"\xc1 no envelope")
    client.delete("delayq:{orders}:topic:msg:r1")
    client.hset("delayq:{orders}:topic:msg:r1", "a", "b")
    now.later(3)
    seen: list[int] = []
    assert consume(group, lambda record: seen.append(record.payload)).drain() == 2
    assert (seen, [letter.reason for letter in group.dead()]) == ([2], ["unreadable-envelope"])


def test_drain_retries_records_with_no_delay(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 1)

    def handle(record: Record) -> None:
        if record.deliveries < 3:
            raise RetryAfter(0)

    assert consume(group, handle).drain() == 3
    assert group.unacked() == []


def test_delayed_records_are_handled_in_order_of_due_time(make: Make, consume: Consume, now: Now):
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
    due: dict[float, Any] = {delay: topic.publish(delay, delay=delay).due_at for delay in (0.2, 0.1)}
    seen: list[Record] = []
    assert consume(group, seen.append, concurrency=1).run(max_records=2) == 2
    assert [record.payload for record in seen] == sorted(due, key=lambda delay: due[delay])
    assert all(record.published_at >= due[record.payload] for record in seen)


def test_run_ends_after_max_records_deliveries(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 100)
    seen: list[int] = []
    consumer = consume(group, lambda record: seen.append(record.payload))
    assert consumer.run(max_records=42) == len(seen) == 42
    assert (group.lag(), group.unacked()) == (58, [])
    assert consumer.run(max_records=8) == 8
    assert consumer.handled == 50


def test_drain_handles_records_that_arrive_meanwhile(make: Make, consume: Consume, client: redis.Redis):
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


def test_killed_consumers_with_generated_names_leave_the_group_unless_they_hold_records(
    topic: Topic, consume: Consume, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(settle, "FORGOTTEN_MS", 0)
    group = topic.group("billing")
    publish(topic, 30)
    kept = {"chosen", "chosen-12", "chosen-1-abcdef0", "chosen-1-abcdeg", "holds-1-abcdef"}
    for name in (*kept, "host-1-012abc", "host.a-b-99-ffffff"):
        assert group.poll(name, 1 if name.startswith("holds") else 2)
        if not name.startswith("holds"):
            group.ack(group.own_unacked(name))
    consume(group, lambda _: None).drain()
    assert {each.name for each in group.consumers()} == kept
    assert [each.consumer for each in group.unacked()] == ["holds-1-abcdef"]


def test_recently_active_consumer_stays_in_its_group(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 1)
    group.ack(group.poll("host-1-012abc"))
    consume(group, lambda _: None).drain()
    assert [each.name for each in group.consumers()] == ["host-1-012abc"]


def test_generated_consumer_names_match_the_pattern_that_groups_forget(topic: Topic, consume: Consume):
    consumer = consume(topic.group("billing"), lambda _: None)
    pattern = settle.NAMELESS.replace("%d", r"\d").replace("%x", "[0-9a-f]")
    assert re.search(pattern, consumer.name)


def test_a_lease_lasts_for_three_heartbeats():
    assert RecordLeases(30).heartbeat_seconds == 10


def test_lease_of_a_record_is_renewed_while_its_handler_runs(
    make: Make, consume: Consume, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(TopicEngine, "heartbeat_seconds", 0.1)
    group = make(shards=1).group("billing")
    client.xadd(stream(), {"number": "0"})
    renewed: list[bool] = []
    deliveries: list[int] = []

    def idle() -> int:
        (row,) = client.xpending_range(stream(), "billing", "-", "+", 1)
        return int(row["time_since_delivered"])

    ages: list[int] = []

    def is_younger() -> bool:
        ages.append(idle())
        return ages[-1] < max(ages)

    def handle(_: Record) -> None:
        renewed.append(eventually(is_younger))
        (row,) = client.xpending_range(stream(), "billing", "-", "+", 1)
        deliveries.append(int(row["times_delivered"]))  # it was not taken over, even by the same consumer

    # On threads, because an event loop blocked by a plain handler cannot renew.
    if isinstance(group, Awaited):
        consumer = Awaited(aio.TopicConsumer(group.target, handle, ack_timeout=30), group.runner)
        assert consumer.drain() == 1
    else:
        assert consume(group, handle, ack_timeout=30).drain() == 1
    assert (renewed, deliveries) == ([True], [1])


def test_record_trimmed_while_it_waits_is_dropped(make: Make, consume: Consume, client: redis.Redis):
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


def test_backoff_that_raises_does_not_end_the_consumer(topic: Topic, consume: Consume, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.runtime.group_member.default_backoff", lambda: backoff.fixed(3600))
    group = topic.group("billing")
    publish(topic, 2)
    assert consume(group, lambda record: record.payload == 1, backoff=lambda _: 1 / 0).drain() == 2
    assert [each.deliveries for each in group.unacked()] == [1]


def test_backoff_sees_the_error(topic: Topic, consume: Consume):
    group, seen = topic.group("billing"), list[BaseException | None]()
    publish(topic, 1)

    def wait(_: int, error: BaseException | None) -> float:
        seen.append(error)
        return 3600

    failed = ValueError("no")

    def fail(_: Record) -> None:
        raise failed

    consume(group, fail, backoff=wait).drain()
    assert seen == [failed]


def test_consumer_ends_when_its_group_is_destroyed(topic: Topic, consume: Consume, client: redis.Redis):
    group = topic.group("billing")
    publish(topic, 1)
    other = Topic("orders", redis=client, shards=None).group("billing", create=False)
    with pytest.raises(UnknownGroup, match="billing, which was destroyed"):
        consume(group, lambda _: other.destroy()).run()
    assert topic.groups() == []
    topic.group("mail").destroy()
    with pytest.raises(UnknownGroup):
        consume(group, lambda _: None).drain()


@dataclass
class Order:
    number: int


class Parcel(msgspec.Struct):
    weight: float


def typed(seen: list[Any]) -> dict[str, Callable[[Any], Any]]:
    """Handlers whose annotations say what they take."""

    def order(order: Order) -> None:
        seen.append(order)

    def parcel(parcel: Parcel) -> None:
        seen.append(parcel)

    def record(record: Record[Order]) -> None:
        assert isinstance(record, Record)
        seen.append(record.payload)

    async def awaited(order: Order) -> None:
        seen.append(order)

    return {"order": order, "parcel": parcel, "record": record, "awaited": awaited}


@pytest.mark.parametrize(
    ("name", "expected"), [("order", Order(7)), ("parcel", Parcel(1.5)), ("record", Order(7)), ("awaited", Order(7))]
)
def test_typed_handler_gets_its_annotated_type(topic: Topic, name: str, expected: Any):
    is_awaited = isinstance(topic, Awaited)
    if name == "awaited" and not is_awaited:
        return
    group: Any = topic.group("billing")
    topic.publish_many([NewRecord(expected), NewRecord({"number": "seven", "weight": "much"}), NewRecord(b"raw")])
    seen: list[Any] = []
    handler = typed(seen)[name]
    if is_awaited:
        assert Awaited(aio.TopicConsumer(group.target, handler), group.runner).drain() == 3
    else:
        assert TopicConsumer(group, handler).drain() == 3
    assert seen == [expected]
    assert [letter.reason for letter in group.dead()] == ["payload-mismatch"] * 2


def test_typed_handler_reads_entries_of_other_programs(make: Make, client: redis.Redis):
    topic = make(shards=1)
    group: Any = topic.group("billing")
    client.xadd(stream(), {"name": "a"})
    seen: list[dict[str, str]] = []

    def handle(values: dict[str, str]) -> None:
        seen.append(values)

    if isinstance(topic, Awaited):
        assert Awaited(aio.TopicConsumer(group.target, handle), group.runner).drain() == 1
    else:
        assert TopicConsumer(group, handle).drain() == 1
    assert seen == [{"name": "a"}]


def test_middleware_runs_around_each_delivery(topic: Topic, consume: Consume):
    group = topic.group("billing")
    publish(topic, 1)
    calls: list[Any] = []
    middleware = Middleware()
    middleware.before_delivery(lambda record: calls.append((record.payload, record.deliveries)))
    middleware.after_delivery(lambda _, error: calls.append(type(error)))

    @middleware.around_delivery
    def around(_: Record) -> Iterator[None]:
        calls.append("in")
        yield
        calls.append("out")

    assert consume(group, lambda record: record.deliveries > 1, middleware=middleware).run(max_records=2) == 2
    assert calls == [(0, 1), "in", ReturnedFalse, (0, 2), "in", "out", type(None)]
    assert group.unacked() == []


def test_handler_over_its_time_limit_is_logged_with_its_record(make: Make, consume: Consume, kind: str):
    topic = make(shards=1)
    group: Any = topic.group("billing")
    publish(topic, 1)
    over = threading.Event()

    def handle(_: Record) -> None:
        assert over.wait(120)

    if isinstance(topic, Awaited):
        consumer: Any = Awaited(aio.TopicConsumer(group.target, handle, timeout=0.01), group.runner)
    else:
        consumer = consume(group, handle, timeout=0.01)
    with capture_logs() as lines:
        thread = threading.Thread(target=lambda: over.set() if eventually(lambda: bool(overruns(lines))) else None)
        thread.start()
        assert consumer.drain() == 1
        thread.join()
    assert (consumer.overran, group.unacked(), kind) == (1, [], kind)
    (line, *_) = overruns(lines)
    assert (line["topic"], line["delivery"], "queue" in line) == ("orders", 1, False)


def overruns(lines: Any) -> list[Any]:
    return [line for line in lines if line["event"].startswith("handler exceeded")]


def test_async_handler_over_its_time_limit_is_cancelled_and_fails(make: Make):
    topic: Any = make(shards=1)
    if not isinstance(topic, Awaited):  # a plain handler is not cancelled
        return
    group: Any = topic.group("billing", max_deliveries=1)
    topic.publish(1)

    async def handle(_: Record) -> None:
        await asyncio.sleep(3600)

    consumer = Awaited(aio.TopicConsumer(group.target, handle, timeout=0.01), group.runner)
    assert (consumer.drain(), consumer.overran) == (1, 1)
    (letter,) = group.dead()
    assert letter.errors == ["TimeoutError: the handler took longer than 0.01 s: cancelled"]


def generator(_: Record) -> Iterator[int]:
    yield 1


def takes_set(_: threading.Lock) -> None:
    raise AssertionError


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"handler": 5}, "handler"),
    ({"handler": generator}, "generator"),
    ({"concurrency": 0}, "concurrency"),
    ({"ack_timeout": 0}, "ack_timeout"),
    ({"ack_timeout": 90_000}, "ack_timeout"),
    ({"shutdown_timeout": -1}, "shutdown_timeout"),
    ({"backoff": 5}, "backoff"),
    ({"timeout": 0}, "timeout"),
    ({"middleware": 5}, "middleware"),
    ({"handler": takes_set}, "takes"),
    ({"name": "a\nb"}, "consumer name"),
    ({"name": ""}, "consumer name"),
]


def test_bad_argument_is_refused(topic: Topic, consume: Consume, subtests: pytest.Subtests):
    kind: Any = aio.TopicConsumer if isinstance(topic, Awaited) else TopicConsumer
    group: Any = topic.group("billing")
    for options, named in REFUSED:
        with subtests.test(options=options), pytest.raises(InvalidInput, match=named):
            kind(getattr(group, "target", group), **{"handler": lambda _: None} | options)
    with pytest.raises(InvalidInput, match="expected a Group"):
        kind("billing", lambda _: None)
    with pytest.raises(InvalidInput, match="max_records"):
        consume(group, lambda _: None).run(max_records=0)
