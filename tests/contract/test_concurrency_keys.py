"""The limit of concurrent deliveries per key: messages held back wait in the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Message, Outgoing, Queue, Reject
from delayq.errors import DuplicateMessage, InvalidInput, StaleReceipt
from delayq.operations import queue_context
from tests.contract.conftest import Drain, Make, Now, examine, intercept

META = "delayq:{jobs}:meta"

Limit = Callable[[int | None], None]


def tenant(message: Message) -> str | None:
    name: str | None = message.headers.get("tenant")
    return name


def of(name: str, *ids: str, **options: Any) -> list[Outgoing]:
    return [Outgoing("x", id=id, headers={"tenant": name}, **options) for id in ids]


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


@pytest.fixture
def queue(make: Make) -> Queue:
    return make(concurrency_key=tenant, shards=1, max_retries=2)


@pytest.fixture
def limit(queue: Queue, client: redis.Redis) -> Limit:
    def limit(count: int | None) -> None:
        queue.stats()
        if count is None:
            client.hdel(META, "per_key")
        else:
            client.hset(META, "per_key", count)

    limit(2)
    return limit


@pytest.mark.usefixtures("limit")
def test_no_more_messages_of_a_key_run_than_its_limit(queue: Queue):
    queue.send_many([*of("big", "b1", "b2", "b3", "b4"), *of("small", "s1"), Outgoing("x", id="nobody's")])
    messages = queue.receive(10)
    assert set(ids(messages)) == {"b1", "b2", "s1", "nobody's"}
    assert {message.id: message.concurrency_key for message in messages} == {
        "b1": "big",
        "b2": "big",
        "s1": "small",
        "nobody's": None,
    }
    assert queue.receive(10) == []
    stats = queue.stats()
    assert (stats.pending, stats.unack, stats.held_back, stats.released, stats.missing) == (2, 4, 2, 2, 0)
    assert queue.ack(messages) == [True] * 4
    assert ids(queue.receive(10)) == ["b3", "b4"]


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("end", ["ack", "nack", "release", "reject"])
def test_next_message_of_a_key_is_handed_out_however_a_delivery_ends(queue: Queue, end: str):
    queue.send_many(of("big", "a", "b", "c"))
    first, _ = queue.receive(10)
    {"nack": lambda: first.nack(60), "release": first.release}.get(end, getattr(first, end))()
    assert "c" in ids(queue.receive(10))


@pytest.mark.usefixtures("limit")
def test_held_back_messages_are_handed_out_earliest_due_first_with_their_lateness(queue: Queue, now: Now):
    queue.send_many(of("big", "1", "2"))
    running = queue.receive(10)
    for number, delay in enumerate([3.0, 1.0, 2.0]):
        queue.send_many(of("big", f"{delay:g}s", delay=delay))
        assert number >= 0
    now.later(2)
    assert queue.receive(10) == []
    now.later(1)
    assert queue.receive(10) == []
    now.later(7)
    order = []
    while running:
        running.pop(0).ack()
        came = queue.receive(10)
        order += [(message.id, message.lateness) for message in came]
        running += came
    assert order == [("1s", 9.0), ("2s", 8.0), ("3s", 7.0)]


@pytest.mark.usefixtures("limit")
def test_slot_that_was_never_released_is_freed_within_a_minute(queue: Queue, now: Now, client: redis.Redis):
    queue.send_many(of("big", "a", "b", "c"))
    for message in queue.receive(10, lease=600):
        client.zrem("delayq:{jobs}:unack", message.id)  # as if both had ended, and neither could say so
    now.later(59.9)
    assert queue.receive(10) == []
    now.later(0.1)
    (message,) = queue.receive(10)
    assert (message.id, message.lateness) == ("c", 60.0)


@pytest.mark.usefixtures("limit")
def test_delivery_longer_than_a_minute_keeps_holding_its_key(queue: Queue, now: Now):
    queue.send_many(of("big", "a", "b", "c"))
    running = queue.receive(10, lease=600)
    for _ in range(3):
        now.later(60)
        assert queue.receive(10) == []
    running[0].ack()
    (message,) = queue.receive(10)
    assert (message.id, message.lateness) == ("c", 180.0)


@pytest.mark.usefixtures("limit")
def test_retries_count_against_the_limit_of_their_key(queue: Queue, now: Now):
    queue.send_many(of("big", "a", "b"))
    first, second = queue.receive(10)
    first.nack(1)
    queue.send_many(of("big", "c"))
    (third,) = queue.receive(10)
    now.later(1)
    assert queue.receive(10) == []
    queue.ack([second, third])
    (again,) = queue.receive(10)
    assert (again.id, again.attempt) == ("a", 2)


@pytest.mark.usefixtures("limit")
def test_lost_lease_frees_its_slot(queue: Queue, now: Now):
    queue.send_many(of("big", "a", "b"))
    queue.receive(10, lease=10)
    now.later(5)
    queue.send_many(of("big", "c"))
    assert queue.receive(10) == []
    now.later(5)
    # Both retries run, or one of them and "c", which the upkeep of the first call frees if a second has passed.
    assert len([*queue.receive(10), *queue.receive(10)]) == 2


@pytest.mark.usefixtures("limit")
def test_held_back_messages_can_be_cancelled_buried_rescheduled_replaced_and_viewed(queue: Queue, now: Now):
    queue.send_many(of("big", "a", "b", "cancelled", "buried", "rescheduled", "replaced", "left"))
    running = queue.receive(10)
    info = queue.get("left")
    assert info is not None
    assert (info.state, info.attempts) == ("pending", 0)
    assert examine(queue).healthy
    assert queue.cancel("cancelled") == "cancelled"
    assert queue.dead.bury("buried") == "buried"
    assert queue.reschedule("rescheduled", delay=5) == "rescheduled"
    queue.send("y", id="replaced", delay=6, on_conflict="replace", headers={"tenant": "other"})
    queue.ack(running)
    assert ids(queue.receive(10)) == ["left"]
    now.later(6)
    assert set(ids(queue.receive(10))) == {"rescheduled", "replaced"}


@pytest.mark.usefixtures("limit")
def test_slot_reserved_for_an_expired_message_is_passed_on(queue: Queue, now: Now):
    queue.send_many([*of("big", "a", "b"), *of("big", "c", expires_in=5), *of("big", "d")])
    running = queue.receive(10)
    now.later(5)
    queue.ack(running[:1])
    assert ids(queue.receive(10)) == ["d"]
    assert queue.stats().expired == 1


@pytest.mark.usefixtures("limit")
def test_refused_ack_keeps_its_slot(queue: Queue):
    queue.send_many(of("big", "a", "b", "c"))
    first, _ = queue.receive(10)
    with pytest.raises(DuplicateMessage):
        first.ack(then=[Outgoing("x", id="c", on_conflict="error")])
    assert queue.receive(10) == []
    first.ack()
    assert ids(queue.receive(10)) == ["c"]


@pytest.mark.usefixtures("limit")
def test_consumer_handles_all_held_back_messages(queue: Queue, drain: Drain):
    queue.send_many(of("big", *(f"b{number}" for number in range(50))))
    queue.send_many(of("small", "s1", "s2"))
    seen: list[str] = []
    assert drain(queue, lambda message: seen.append(message.id), concurrency=4) == 52
    stats = queue.stats()
    assert (len(set(seen)), stats.acked, stats.inside, stats.missing) == (52, 52, 0, 0)
    assert examine(queue).healthy


def test_limit_can_be_raised_and_removed_while_messages_wait(queue: Queue, limit: Limit, now: Now):
    limit(1)
    queue.send_many(of("big", "a", "b", "c"))
    assert ids(queue.receive(10)) == ["a"]
    limit(2)
    queue.send_many(of("big", "d"))
    (second,) = queue.receive(10)
    assert second.id in {"b", "d"}  # "b" if a second has passed: the upkeep of that call frees it
    limit(None)
    now.later(61)
    freed = [*queue.receive(10), *queue.receive(10)]  # what an upkeep frees comes with the next call
    assert set(ids(freed)) >= {"b", "c", "d"} - {second.id}


@pytest.mark.parametrize(("count", "going"), [(None, ["b", "c", "d", "e"]), (3, ["b", "c"])], ids=["lifted", "raised"])
def test_raising_or_removing_the_limit_frees_held_back_messages_at_once(
    queue: Queue, limit: Limit, count: int | None, going: list[str]
):
    limit(1)
    queue.send_many(of("big", "a", "b", "c", "d"))
    assert ids(queue.receive(10)) == ["a"]
    queue.configure(concurrency_per_key=count)
    queue.send_many(of("big", "e"))
    assert ids(queue.receive(10)) == going


def test_limit_stored_later_applies_within_a_second(queue: Queue, limit: Limit, monkeypatch: pytest.MonkeyPatch):
    limit(None)
    clock = 1000.0
    monkeypatch.setattr("delayq.operations.queue_context.time.monotonic", lambda: clock)

    def taken() -> str | None:
        queue.send("x", headers={"tenant": "big"})
        (message,) = queue.receive(1)
        return message.concurrency_key

    assert taken() is None
    limit(1)
    clock += 1
    assert taken() == "big"


def test_queue_without_a_limit_rarely_checks_for_one(queue: Queue, limit: Limit, monkeypatch: pytest.MonkeyPatch):
    limit(None)
    clock = 1000.0
    monkeypatch.setattr("delayq.operations.queue_context.time.monotonic", lambda: clock)
    names: list[str] = []
    intercept(queue, monkeypatch, before=lambda calls: names.extend(c.script.name for c in calls if c.script))
    for number in range(5):
        queue.send_many(of("big", str(number)))
        queue.ack(queue.receive(1))
        clock += 0.2
    assert (names.count("acquire_slot"), names.count("release_slot")) == (1, 0)


@pytest.mark.usefixtures("limit")
def test_batch_acquires_and_releases_its_slots_in_one_call_each(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send_many([each for number in range(200) for each in of(f"tenant {number}", f"m{number}")])
    queue._context.claims.budget.note(1, 100, 0.0)  # otherwise its first claim is small
    names: list[str] = []
    intercept(queue, monkeypatch, before=lambda calls: names.extend(c.script.name for c in calls if c.script))
    assert all(queue.ack(queue.receive(200)))
    assert (names.count("acquire_slot"), names.count("release_slot"), names.count("ack")) == (1, 1, 1)


# -- what the function returns -----------------------------------------------------------------------------------------


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (7, "returned 7"),
        (b"x", "returned b'x'"),
        ("", "a non-empty string"),
        ("a\0b", "without"),
        ("\udc80", "cannot be encoded"),
        ("ü" * 129, "258 bytes"),
    ],
)
def test_invalid_key_fails_only_its_own_delivery(make: Make, client: redis.Redis, answer: Any, said: str):
    queue = make(concurrency_key=lambda message: answer if message.id == "bad" else "good", shards=1)
    queue.send_many([Outgoing("x", id="bad"), Outgoing("x", id="good")])
    client.hset(META, "per_key", 2)
    assert ids(queue.receive(10)) == ["good"]
    info = queue.get("bad")
    assert info is not None
    assert (info.state, info.attempts) == ("retry", 1)
    assert said in (info.error or "")


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [(KeyError("tenant"), "retry", "KeyError"), (SystemExit(3), "retry", "SystemExit"), (Reject("no"), "dead", "no")],
)
def test_key_function_that_raises_fails_the_delivery_like_its_handler(
    make: Make, client: redis.Redis, drain: Drain, error: BaseException, state: str, said: str
):
    def choose(message: Message) -> str:
        if message.id == "bad":
            raise error
        return "good"

    queue = make(concurrency_key=choose, shards=1)
    queue.send_many([Outgoing("x", id="bad"), Outgoing("x", id="good")])
    client.hset(META, "per_key", 2)
    handled: list[str] = []
    drain(queue, lambda message: handled.append(message.id))
    info = queue.get("bad")
    assert info is not None
    assert (handled, info.state) == (["good"], state)
    assert said in (info.error or "")


def test_key_may_have_up_to_256_bytes_except_zero_bytes(make: Make, client: redis.Redis):
    keys = ["x" * 256, "ü" * 128, "\x01", "k", "k\x01", "\U0010ffff", "a b\n"]
    queue = make(concurrency_key=lambda message: keys[message.payload % len(keys)], shards=1)
    queue.send_many([Outgoing(number) for number in range(3 * len(keys))])
    client.hset(META, "per_key", 2)
    messages = queue.receive(100)
    assert sorted(str(message.concurrency_key) for message in messages) == sorted(keys * 2)
    queue.ack(messages)
    assert sorted(str(message.concurrency_key) for message in queue.receive(100)) == sorted(keys)


def test_key_function_that_is_not_callable_is_refused(make: Make, subtests: pytest.Subtests):
    for value in ["tenant", 7, object()]:
        with subtests.test(value=value), pytest.raises(InvalidInput, match="concurrency_key"):
            make(concurrency_key=value)


def test_async_key_function_is_refused(make: Make):
    async def choose(_: Message) -> str:
        return "a"

    with pytest.raises(InvalidInput, match="plain function"):
        make(concurrency_key=choose)


def test_key_limit_is_refused_on_a_queue_with_shards(make: Make):
    with pytest.raises(InvalidInput, match="shards=1"):
        make(concurrency_key=tenant, shards=2)
    make(shards=2).send("x")
    with pytest.raises(InvalidInput, match="shards=1"):
        make(concurrency_key=tenant, shards=None).receive()


def test_replaced_delivery_keeps_its_slot_until_it_is_settled(queue: Queue, limit: Limit):
    limit(1)
    queue.send_many(of("big", "x"))
    (old,) = queue.receive()
    for _ in range(3):
        queue.send("new", id="x", headers={"tenant": "big"}, on_conflict="replace")
        assert queue.receive() == []
    with pytest.raises(StaleReceipt):
        old.ack()
    assert [each.payload for each in queue.receive()] == ["new"]


def test_replaced_delivery_loses_its_slot_when_its_lease_ends(queue: Queue, limit: Limit, now: Now):
    limit(1)
    queue.send_many(of("big", "x"))
    queue.receive(lease=30)
    queue.send("new", id="x", headers={"tenant": "big"}, on_conflict="replace")
    assert queue.receive() == []
    now.later(61)
    assert [each.payload for each in queue.receive()] == ["new"]


def test_debounced_message_waits_for_its_due_time_and_for_the_delivery_it_replaces(
    queue: Queue, limit: Limit, now: Now
):
    def debounced() -> Message:
        queue.send("new", id="x", delay=5, headers={"tenant": "big"}, on_conflict="replace")
        now.later(4.999)
        assert queue.receive() == []
        return message

    limit(1)
    queue.send_many(of("big", "x"))
    (message,) = queue.receive()
    with pytest.raises(StaleReceipt):
        debounced().ack()
    assert queue.receive() == []
    now.later(0.001)
    (message,) = queue.receive()
    debounced()
    now.later(10)
    assert queue.receive() == []
    with pytest.raises(StaleReceipt):
        message.ack()
    assert [each.payload for each in queue.receive()] == ["new"]


@pytest.mark.parametrize("stored", [True, False], ids=["configured", "constructor"])
def test_client_without_a_key_function_says_once_that_it_ignores_the_limit(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stored: bool
):
    monkeypatch.setattr(queue_context, "_logged", set())
    if stored:
        make(shards=1).configure(concurrency_per_key=1)
    queue = make(shards=1) if stored else make(shards=1, concurrency_per_key=1)
    queue.send("x")
    assert "limit per key ignored" not in caplog.text  # a program that only sends needs no key
    for _ in range(2):
        queue.receive()
    assert caplog.text.count("limit per key ignored") == 1
    make("known", shards=1, concurrency_per_key=1, concurrency_key=lambda _: "a").receive()
    make("unlimited", shards=1).receive()
    assert caplog.text.count("limit per key ignored") == 1
