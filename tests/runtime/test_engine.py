"""What a consumer does with a handler's result, with leases, prefetch and shutdown, on a real server."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue, Reject, RetryAfter, backoff
from delayq.errors import HandlerMissing, InvalidInput
from delayq.runtime import engine
from tests.harness.waiting import eventually

Body = Callable[[Message], Any]


@pytest.fixture
def queue(any_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=any_client, backoff=backoff.fixed(0)) as queue:
        yield queue


@pytest.fixture
def running() -> Iterator[Callable[..., Consumer]]:
    """``running(queue, handler, …)``: a started consumer, stopped after the test."""
    started: list[Consumer] = []

    def start(*args: Any, **options: Any) -> Consumer:
        consumer = Consumer(*args, **options)
        consumer.start()
        started.append(consumer)
        return consumer

    yield start
    for consumer in started:
        consumer.stop(timeout=5)


def has(handled: list[Message], count: int) -> bool:
    return len(handled) == count


def test_message_is_acked_and_gone_when_its_handler_returns(queue: Queue) -> None:
    queue.send({"n": 1})
    assert Consumer(queue, lambda _: None).drain() == 1
    stats = queue.stats()
    assert (stats.acked, stats.inside, stats.garbage, stats.missing) == (1, 0, 0, 0)


def raising(error: BaseException) -> Body:
    def handle(_: Message) -> None:
        raise error

    return handle


@pytest.mark.parametrize(
    ("handler", "state", "error"),
    [
        (lambda _: False, "retry", "the handler returned False"),
        (raising(ValueError("boom")), "retry", "ValueError: boom"),
        (raising(SystemExit(3)), "retry", "SystemExit: 3"),
        (raising(KeyboardInterrupt()), "retry", "KeyboardInterrupt: "),
        (raising(RetryAfter(60)), "retry", "RetryAfter: retry after 60"),
        (raising(Reject("no such user")), "dead", "Reject: no such user"),
    ],
)
def test_exception_of_a_handler_decides_the_state(
    any_client: redis.Redis, handler: Body, state: str, error: str
) -> None:
    queue = Queue("verdicts", redis=any_client, backoff=backoff.fixed(30))
    sent = queue.send("x")
    assert Consumer(queue, handler).drain() == 1
    info = queue.get(sent.id)
    assert info is not None
    assert (info.state, info.attempts, info.error) == (state, 1, error)
    assert info.reason == ("no such user" if state == "dead" else None)


def test_retry_after_sets_the_time_of_the_next_attempt(any_client: redis.Redis) -> None:
    now = [1_000_000.0]
    queue = Queue("later", redis=any_client, clock=lambda: now[0], backoff=backoff.fixed(1))
    sent = queue.send("x")
    Consumer(queue, raising(RetryAfter(60))).drain()
    info = queue.get(sent.id)
    assert info is not None
    assert info.due_at is not None
    assert info.due_at.timestamp() == 1060


def test_handler_that_keeps_failing_makes_a_dead_letter_with_its_last_error(queue: Queue) -> None:
    attempts = []

    def fail(message: Message) -> None:
        attempts.append(message.attempt)
        raise ValueError(f"attempt {message.attempt}")

    sent = queue.send("x", max_retries=3)
    assert Consumer(queue, fail).drain() == 4
    assert attempts == [1, 2, 3, 4]
    (dead,) = queue.dead.list()
    assert (dead.id, dead.reason, dead.error, dead.attempts) == (
        sent.id,
        "retries-exhausted",
        "ValueError: attempt 4",
        4,
    )


def test_handler_can_settle_its_message_itself(queue: Queue) -> None:
    queue.send("x")
    assert Consumer(queue, lambda message: message.reject("seen enough")).drain() == 1
    assert [info.reason for info in queue.dead.list()] == ["seen enough"]
    assert queue.stats().acked == 0


def test_expired_message_is_counted_and_never_handled(any_client: redis.Redis) -> None:
    now = [1_000_000.0]
    queue = Queue("fresh", redis=any_client, clock=lambda: now[0])
    queue.send("x", expires_in=10)
    now[0] += 10_000
    handled: list[Message] = []
    assert Consumer(queue, handled.append).drain() == 0
    stats = queue.stats()
    assert (handled, stats.expired, stats.inside, stats.missing) == ([], 1, 0, 0)


def test_consumer_sleeping_on_an_empty_queue_hears_a_send(queue: Queue, running: Callable[..., Consumer]) -> None:
    handled: list[Message] = []
    running(queue, handled.append)
    time.sleep(0.2)
    for count in range(1, 6):
        queue.send("x")
        assert eventually(partial(has, handled, count))


def test_messages_are_handled_in_the_order_of_their_due_times(queue: Queue, running: Callable[..., Consumer]) -> None:
    handled: list[Message] = []
    queue.send_many([Outgoing(n, delay=0.05 + n * 0.02) for n in reversed(range(20))])
    running(queue, handled.append, concurrency=1)
    assert eventually(lambda: len(handled) == 20)
    assert [message.payload for message in handled] == list(range(20))
    assert all(message.handed_ms >= message.due_ms for message in handled)


def test_lease_is_renewed_while_the_handler_runs(any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.runtime.lease_keeper.HEARTBEATS_PER_LEASE", 600)
    now = [1_000_000.0]
    queue = Queue("long", redis=any_client, clock=lambda: now[0], lease=60)
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.attempt)
        now[0] += 40_000
        message.held_until -= 40
        renewed = now[0] + 60_000.001  # the microsecond of the delivery is odd: a consumer's
        assert eventually(lambda: any_client.zscore("delayq:{long}:unack", message.id) == renewed)
        now[0] += 40_000  # when the first lease has ended

    queue.send("x")
    Consumer(queue, handle).drain()
    stats = queue.stats()
    assert (seen, stats.lease_lost, stats.acked) == ([1], 0, 1)


def test_waiting_behind_slow_messages_uses_no_retries(any_client: redis.Redis) -> None:
    """A backlog that takes several leases to work off waits in Redis, not under a lease."""
    attempts: list[int] = []
    queue = Queue("backlog", redis=any_client, lease=30, clock=lambda: 1_000_000 + 300 * len(attempts))

    def handle(message: Message) -> None:
        time.sleep(0.0025)
        attempts.append(message.attempt)

    queue.send_many([Outgoing(n) for n in range(400)])
    assert Consumer(queue, handle, concurrency=1).drain() == 400
    assert attempts == [1] * 400
    assert queue.stats().lease_lost == 0


def test_stop_finishes_running_messages_and_hands_back_the_rest_without_using_retries(any_client: redis.Redis) -> None:
    queue = Queue("stop", redis=any_client)
    started, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.payload == "slow":
            started.set()
            go_on.wait(120)

    queue.send_many([Outgoing("quick") for _ in range(200)])
    consumer = Consumer(queue, handle, concurrency=2)
    consumer.drain()  # teaches the consumer that the handler is quick, so that it fetches ahead
    queue.send_many([Outgoing("slow") for _ in range(50)])
    consumer = Consumer(queue, handle, concurrency=2)
    consumer.start()
    assert started.wait(120)
    stopping = threading.Thread(target=consumer.stop)
    stopping.start()
    assert eventually(lambda: queue.stats().unack in (1, 2) or not stopping.is_alive())  # only what has started
    go_on.set()
    stopping.join(120)
    stats = queue.stats()
    assert stats.unack == 0
    assert stats.acked + stats.ready + stats.pending == 250
    assert stats.acked >= 201  # the quick ones, and those that had started
    assert all(info.attempts == 0 for info in queue.peek("ready", limit=50))


def test_handler_that_outlasts_the_shutdown_timeout_is_handed_back_and_uses_no_retry(
    any_client: redis.Redis,
) -> None:
    queue = Queue("endless", redis=any_client, max_retries=0)
    started, end = threading.Event(), threading.Event()

    def handle(_: Message) -> None:
        started.set()
        end.wait(120)

    sent = queue.send("x")
    consumer = Consumer(queue, handle, shutdown_timeout=0.1)
    consumer.start()
    assert started.wait(120)
    consumer.stop()
    info = queue.get(sent.id)
    end.set()
    assert info is not None
    assert (info.state, info.attempts, consumer.handled) == ("ready", 1, 0)
    attempts: list[tuple[int, bool]] = []
    Consumer(queue, lambda message: attempts.append((message.attempt, message.is_last))).drain()
    assert attempts == [(2, True)]
    assert queue.stats().acked == 1


def test_paused_queue_hands_out_nothing_until_resumed(queue: Queue, running: Callable[..., Consumer]) -> None:
    handled: list[Message] = []
    queue.pause()
    running(queue, handled.append)
    queue.send("x")
    time.sleep(0.3)
    assert handled == []
    queue.resume()
    assert eventually(lambda: len(handled) == 1)


def test_consumer_wakes_at_the_end_of_a_pause(
    queue: Queue, running: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FALLBACK_MS", 60_000)  # nothing else wakes it
    handled: list[Message] = []
    paused_at = dt.datetime.now(dt.UTC)
    queue.pause(0.5)
    queue.send("x")
    running(queue, handled.append)
    assert eventually(lambda: len(handled) == 1, seconds=25)
    handed_at = handled[0].due_at + dt.timedelta(seconds=handled[0].lateness)
    assert handed_at >= paused_at + dt.timedelta(milliseconds=499)  # the server cuts off microseconds


def test_consumer_follows_the_end_of_a_pause_that_is_shortened(
    queue: Queue, running: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FALLBACK_MS", 60_000)
    handled: list[Message] = []
    queue.pause(3600)
    queue.send("x")
    running(queue, handled.append)
    assert eventually(lambda: queue.stats().promoted == 1)
    queue.pause(0.5)
    assert eventually(lambda: len(handled) == 1, seconds=25)


def test_burst_does_not_wait_for_the_end_of_a_pause(queue: Queue) -> None:
    queue.send("x")
    queue.pause(3600)
    assert Consumer(queue, lambda _: None).drain() == 0


def test_burst_ends_without_sleeping_when_everything_it_claimed_has_died(
    queue: Queue, any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(*_: object, **__: object) -> None:
        raise AssertionError("a burst has nothing to wait for")

    monkeypatch.setattr(engine.ConsumerEngine, "_sleep", sleep)
    queue.send("x", id="a")
    any_client.delete(queue._context.shard("a").keys.message("a"))
    assert Consumer(queue, lambda _: None).drain() == 0
    assert [dead.reason for dead in queue.dead.list()] == ["payload-missing"]


def test_max_messages_ends_the_run(queue: Queue) -> None:
    queue.send_many([Outgoing(n) for n in range(100)])
    assert Consumer(queue, lambda _: None, concurrency=4).run(max_messages=30) == 30
    stats = queue.stats()
    assert (stats.acked, stats.inside, stats.unack) == (30, 70, 0)


def test_cancel_in_flight_lets_the_handler_finish_and_prevents_its_retry(queue: Queue) -> None:
    outcomes = []

    def handle(message: Message) -> None:
        outcomes.append(queue.cancel(message.id))
        raise ValueError("fails after the cancel")

    queue.send("x")
    assert Consumer(queue, handle).drain() == 1
    stats = queue.stats()
    assert outcomes == ["in_flight"]
    assert (stats.retry, stats.dead, stats.cancelled, stats.missing) == (0, 0, 1, 0)


def test_two_consumers_handle_each_message_once(queue: Queue, running: Callable[..., Consumer]) -> None:
    handled: list[str] = []
    queue.send_many([Outgoing(n) for n in range(2000)])
    for _ in range(2):
        running(queue, lambda message: handled.append(message.id), concurrency=4)
    assert eventually(lambda: queue.stats().inside == 0)
    assert len(handled) == len(set(handled)) == 2000


def test_all_shards_are_served(any_client: redis.Redis) -> None:
    queue = Queue("wide", redis=any_client, shards=5)
    queue.send_many([Outgoing(n) for n in range(500)])
    seen: list[int] = []
    assert Consumer(queue, lambda message: seen.append(message.payload), concurrency=3).drain() == 500
    assert sorted(seen) == list(range(500))
    assert queue.stats().missing == 0


def test_delivery_nacked_or_rejected_by_its_handler_counts_as_failed(queue: Queue) -> None:
    verbs: dict[str, Callable[[Message], None]] = {
        "ack": Message.ack,
        "nack": lambda message: message.nack(delay=60),
        "reject": Message.reject,
    }
    queue.send_many([Outgoing(verb) for verb in verbs])
    consumer = Consumer(queue, lambda message: verbs[message.payload](message))
    consumer.drain()
    assert (consumer.handled, consumer.failed) == (3, 2)


def test_garbage_is_collected_by_consumers(
    queue: Queue, running: Callable[..., Consumer], any_client: redis.Redis
) -> None:
    sents = queue.send_many([Outgoing(n, delay=3600) for n in range(50)])
    assert {queue.cancel(sent.id) for sent in sents} == {"cancelled"}
    running(queue, lambda _: None)
    assert eventually(lambda: not list(any_client.scan_iter("*:msg:*")))
    stats = queue.stats()
    assert (stats.garbage, stats.collected, stats.missing) == (0, 50, 0)


def test_consumer_needs_a_handler(queue: Queue) -> None:
    with pytest.raises(HandlerMissing, match=r"@queue\.handler"):
        Consumer(queue)


@pytest.mark.parametrize("concurrency", [0, -1, 10_001, 1.5])
def test_concurrency_out_of_range_is_refused(queue: Queue, concurrency: Any) -> None:
    with pytest.raises(InvalidInput, match="concurrency"):
        Consumer(queue, lambda _: None, concurrency=concurrency)
