"""A queue with a `max_length` refuses what it has no room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Ack, Consumer, DuplicateMessage, InvalidInput, Outgoing, Queue, QueueFull
from delayq.errors import ClientTooOld
from tests.contract.conftest import Drain, Make, Now, Take


@pytest.fixture
def queue(make: Make) -> Queue:
    """A queue of a single shard: with more, it would refuse the limit."""
    return make("bounded", shards=1, max_retries=1)


def sends(count: int) -> list[Outgoing]:
    return [Outgoing(number, id=f"{number}") for number in range(count)]


def test_send_beyond_the_limit_is_refused_and_stores_nothing(queue: Queue, client: Any):
    queue.configure(max_length=2)
    queue.send_many(sends(2))
    before = {key: client.dump(key) for key in client.keys("*")}
    with pytest.raises(QueueFull) as caught:
        queue.send("x", id="beyond")
    assert str(caught.value) == (
        "queue bounded is full, with max_length 2: the message was not stored; send again once messages have been "
        "handled, or configure a higher max_length"
    )
    error = caught.value
    assert (error.sent, error.unsent, error.ids, error.max_length) == ([], [0], ["beyond"], 2)
    assert {key: client.dump(key) for key in client.keys("*")} == before
    assert queue.get("beyond") is None


def test_batch_stores_what_there_is_room_for_and_says_which_is_refused(queue: Queue):
    queue.configure(max_length=4)
    queue.send("x", id="1")
    with pytest.raises(QueueFull) as caught:
        queue.send_many(sends(8))
    error = caught.value
    assert [(each.id, each.created) for each in error.sent] == [("0", True), ("1", False), ("2", True), ("3", True)]
    assert (error.unsent, error.ids) == ([4, 5, 6, 7], ["4", "5", "6", "7"])
    assert "4 of 8 messages were not stored ('4', '5', '6'…; positions from 0: 4–7), all others were" in str(error)
    assert (queue.stats().pending, queue.stats().sent, queue.stats().missing) == (4, 4, 0)


@pytest.mark.parametrize("room", [0, 1, 99, 100, 101, 249, 250])
def test_batch_of_several_calls_fills_the_queue_exactly(queue: Queue, room: int):
    queue.configure(max_length=1 + room)
    queue.send("x")
    messages = [Outgoing(number) for number in range(250)]
    if room == 250:
        assert len(queue.send_many(messages)) == 250
        return
    with pytest.raises(QueueFull) as caught:
        queue.send_many(messages)
    assert (caught.value.unsent, len(caught.value.sent)) == ([*range(room, 250)], room)
    assert queue.stats().pending == 1 + room


def test_waiting_running_and_failed_messages_count_and_dead_ones_do_not(queue: Queue, take: Take):
    queue.send("dead", id="dead")
    take("dead").reject("why")
    queue.send("retried", id="retried")
    take("retried").nack(delay=60)
    queue.send("running", id="running")
    running = take("running")
    queue.send("ready", id="ready")
    queue.send("later", id="pending", delay=60)
    queue.configure(max_length=4)
    with pytest.raises(QueueFull):
        queue.send("x")
    queue.configure(max_length=5)
    queue.send("x", id="x")
    running.ack()
    queue.send("y", id="y")
    with pytest.raises(QueueFull):
        queue.send("z")


@pytest.mark.parametrize("free", ["cancel", "ack", "purge", "reject", "raise", "remove"])
def test_room_is_used_as_soon_as_there_is_some(queue: Queue, take: Take, free: str):
    queue.configure(max_length=1)
    queue.send("x", id="a")
    with pytest.raises(QueueFull):
        queue.send("x", id="b")
    freeing: dict[str, Callable[[], object]] = {
        "cancel": lambda: queue.cancel("a"),
        "ack": lambda: take().ack(),
        "purge": queue.purge,
        "reject": lambda: take().reject("why"),
        "raise": lambda: queue.configure(max_length=2),
        "remove": lambda: queue.configure(max_length=None),
    }
    freeing[free]()
    assert queue.send("x", id="b").created
    assert queue.stats().missing == 0


def test_lowered_limit_keeps_what_is_there(queue: Queue):
    queue.send_many(sends(5))
    queue.configure(max_length=3)
    assert queue.stats().pending == 5
    queue.cancel("0")
    queue.cancel("1")
    with pytest.raises(QueueFull):
        queue.send("x", id="x")
    queue.cancel("2")
    assert queue.send("x", id="x").created


@pytest.mark.parametrize("options", [{}, {"unique_for": 60}, {"on_conflict": "error"}, {"on_conflict": "replace"}])
def test_existing_message_is_no_addition(queue: Queue, options: dict[str, Any]):
    queue.configure(max_length=1)
    queue.send("old", id="a", delay=60)
    if options.get("on_conflict") == "error":
        with pytest.raises(DuplicateMessage):
            queue.send("new", id="a", **options)
    else:
        assert not queue.send("new", id="a", **options).created
    info = queue.get("a")
    assert info is not None
    assert info.payload == ("new" if options.get("on_conflict") == "replace" else "old")
    with pytest.raises(QueueFull):
        queue.send("new", id="b", **options)
    assert queue.get("b") is None
    assert queue.stats().missing == 0


def test_refused_send_reserves_nothing(queue: Queue, take: Take):
    queue.configure(max_length=1)
    queue.send("x", id="a", unique_for=60)
    with pytest.raises(QueueFull) as caught:
        queue.send_many([Outgoing("x", id=id_, unique_for=60) for id_ in "abc"])
    assert (caught.value.unsent, caught.value.ids) == ([1, 2], ["b", "c"])
    take().ack()
    assert queue.send("x", id="b", unique_for=60).created


def test_refused_id_in_garbage_stays_garbage(queue: Queue):
    queue.configure(max_length=1)
    queue.send("old", id="a")
    queue.cancel("a")
    queue.send("x", id="b")
    for unique_for in (None, 60):
        with pytest.raises(QueueFull):
            queue.send("new", id="a", unique_for=unique_for)
    assert queue.stats().garbage == 1
    queue.collect_garbage()
    assert (queue.stats().collected, queue.stats().missing) == (1, 0)


def test_full_queue_is_reported_before_a_duplicate(queue: Queue):
    queue.configure(max_length=2)
    queue.send("x", id="0")
    with pytest.raises(QueueFull) as caught:
        queue.send_many([Outgoing("x", id=each.id, on_conflict="error") for each in sends(3)])
    assert [each.created for each in caught.value.sent] == [False, True]
    assert caught.value.unsent == [2]


def test_retries_requeues_chains_and_schedules_are_not_refused(queue: Queue, take: Take, now: Now):
    queue.configure(max_length=1)
    queue.send("x", id="a")
    take().nack(delay=0)
    take().reject("why")
    queue.send("x", id="b")
    assert queue.dead.requeue("a") == 1
    assert queue.stats().pending == 2
    queue.cancel("a")
    take("b").ack(then=[Outgoing("next", id="c", delay=60), Outgoing("next", id="d", delay=60)])
    assert queue.stats().pending == 2
    queue.schedules.add("tick", "every 10s")
    assert queue.stats().pending == 3
    now.later(10)
    queue.receive()[0].ack()
    assert queue.stats().pending == 3
    with pytest.raises(QueueFull):
        queue.schedules.run_now("tick")


def test_chain_of_a_handler_is_not_refused(queue: Queue, drain: Drain):
    queue.configure(max_length=1)
    queue.send(0)
    handled: list[int] = []

    def handle(message: Any) -> Any:
        handled.append(message.payload)
        return Ack(then=[Outgoing(1), Outgoing(1)]) if message.payload == 0 else None

    assert drain(queue, handle) == 3
    assert handled == [0, 1, 1]


def test_handler_that_sends_to_its_own_full_queue_fails(redis_client: redis.Redis):
    with Queue("bounded", redis=redis_client) as queue:
        queue.configure(max_length=1)
        queue.send(0, id="a")
        Consumer(queue, lambda _: queue.send(1) and None).drain()
        info = queue.get("a")
    assert info is not None
    assert (info.state, info.attempts) == ("retry", 1)
    assert "queue bounded is full" in f"{info.error}"


def test_client_that_is_too_old_changes_no_limit(redis_client: redis.Redis):
    with Queue("jobs", redis=redis_client) as queue:
        queue.configure(max_length=5)
        redis_client.hset("delayq:{jobs}:meta", "needs", "99 9.9.9")
        before = redis_client.hgetall("delayq:{jobs}:meta")
        with pytest.raises(ClientTooOld):
            queue.configure(max_length=7, rate="5/s")
        assert redis_client.hgetall("delayq:{jobs}:meta") == before


def test_replacing_a_dead_letter_is_an_addition(queue: Queue, take: Take):
    queue.configure(max_length=1)
    queue.send("old", id="a")
    take().reject("why")
    queue.send("x", id="b")
    for batch in (sends(0), [Outgoing("x", id="b")]):
        with pytest.raises(QueueFull) as caught:
            queue.send_many([*batch, Outgoing("new", id="a", on_conflict="replace")])
        assert (caught.value.ids, caught.value.unsent) == (["a"], [len(batch)])
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.payload) == ("dead", "old")
    assert (queue.stats().pending, queue.stats().dead) == (1, 1)
    queue.cancel("b")
    assert not queue.send("new", id="a", on_conflict="replace").created
    assert (queue.stats().pending, queue.stats().dead) == (1, 0)
    assert not queue.send("newer", id="a", on_conflict="replace").created


def test_large_messages_are_refused_alike(queue: Queue):
    queue.configure(max_length=1)
    with pytest.raises(QueueFull) as caught:
        queue.send_many([Outgoing("x" * 20_000, id=id_) for id_ in "abc"])
    assert caught.value.unsent == [1, 2]
    assert queue.get("b") is None


def test_queue_with_shards_refuses_the_limit(make: Make):
    queue = make("spread", shards=3)
    with pytest.raises(InvalidInput, match="shards=3 takes no rate, concurrency or length limit"):
        queue.configure(max_length=5)
    assert queue.configuration().max_length is None


@pytest.mark.parametrize("value", [0, -1, 10_000_001, 1.5, True, "5"])
def test_bad_limit_is_refused_with_its_value(queue: Queue, value: Any):
    with pytest.raises(InvalidInput, match=f"max_length {value!r} is not a whole number from 1 to 10,000,000"):
        queue.configure(max_length=value)
