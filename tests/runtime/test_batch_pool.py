"""A consumer of batches on a real server: when batches start, what is held, and what is handed back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Consumer, Message, Outgoing, Queue, backoff
from delayq.model.batch_handler import BatchHandler, Batching
from delayq.model.middleware import Middleware
from delayq.model.outcome import DONE, RELEASED
from delayq.runtime.batch_pool import BatchPool
from tests.harness.waiting import eventually

AN_HOUR = 3600


@pytest.fixture
def queue(any_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=any_client, backoff=backoff.fixed(30)) as queue:
        yield queue


@pytest.fixture
def running() -> Iterator[Callable[..., Consumer]]:
    """``running(queue, …)``: a started consumer, stopped after the test."""
    started: list[Consumer] = []

    def start(*args: Any, **options: Any) -> Consumer:
        consumer = Consumer(*args, **options)
        consumer.start()
        started.append(consumer)
        return consumer

    yield start
    for consumer in started:
        consumer.stop(timeout=5)


def test_batch_starts_when_it_is_full(queue: Queue, running: Callable[..., Consumer]) -> None:
    sizes: list[int] = []
    queue.batch_handler(max_messages=3, max_wait=AN_HOUR)(lambda messages: sizes.append(len(messages)))
    running(queue)
    for n in range(3):
        assert eventually(lambda n=n: queue.stats().unack == n)  # type: ignore[misc]
        assert sizes == []
        queue.send(n)
    assert eventually(lambda: queue.stats().acked == 3)
    assert sizes == [3]


def test_incomplete_batch_starts_after_its_wait(queue: Queue, running: Callable[..., Consumer]) -> None:
    queue.batch_handler(max_messages=500, max_wait=0.02)(lambda _: None)
    running(queue)
    for n in range(3):
        queue.send(n)
        assert eventually(lambda n=n: queue.stats().acked == n + 1)  # type: ignore[misc]


def test_incomplete_batch_is_handed_back_at_shutdown(queue: Queue, running: Callable[..., Consumer]) -> None:
    seen: list[Any] = []
    queue.batch_handler(max_wait=AN_HOUR)(seen.extend)
    consumer = running(queue)
    queue.send_many(Outgoing(n) for n in range(5))
    assert eventually(lambda: queue.stats().unack == 5)
    consumer.stop()
    stats = queue.stats()
    assert (seen, consumer.handled) == ([], 0)
    assert (stats.ready, stats.released, stats.unack, stats.missing) == (5, 5, 0, 0)
    assert [message.attempt for message in queue.receive(5)] == [1] * 5


def test_running_batch_is_finished_at_shutdown(queue: Queue, running: Callable[..., Consumer]) -> None:
    began, may_end = threading.Event(), threading.Event()

    @queue.batch_handler(max_messages=2, max_wait=AN_HOUR)
    def handle(_: list[Message]) -> None:
        began.set()
        may_end.wait(120)

    consumer = running(queue, concurrency=2)
    queue.send_many(Outgoing(n) for n in range(3))
    assert began.wait(120)
    assert eventually(lambda: queue.stats().unack == 3)
    stopping = threading.Thread(target=consumer.stop)
    stopping.start()
    assert eventually(lambda: queue.stats().released == 1)
    may_end.set()
    stopping.join()
    assert (queue.stats().acked, queue.stats().inside, consumer.handled) == (2, 1, 2)


def test_consumer_holds_one_batch_per_place_while_their_duration_is_unknown(
    queue: Queue, running: Callable[..., Consumer]
) -> None:
    may_end = threading.Event()
    begun: list[int] = []

    @queue.batch_handler(max_messages=10, max_wait=AN_HOUR)
    def handle(messages: list[Message]) -> None:
        begun.append(len(messages))
        may_end.wait(120)

    queue.send_many(Outgoing(n) for n in range(100))
    running(queue, concurrency=2)
    assert eventually(lambda: begun == [10, 10])
    assert queue.stats().unack == 20
    may_end.set()
    assert eventually(lambda: queue.stats().acked == 100)


def test_batch_does_not_wait_while_a_suspect_stops_claims(
    queue: Queue, any_client: redis.Redis, running: Callable[..., Consumer]
) -> None:
    seen: list[list[str]] = []
    queue.batch_handler(max_wait=AN_HOUR)(lambda messages: seen.append([message.id for message in messages]))
    queue.send_many(Outgoing("x", id=id) for id in ("a", "b", "suspect"))
    any_client.hset(queue._context.shards[0].keys.attempts, "suspect", "2.0.0.2")  # it lost its lease twice
    running(queue)
    assert eventually(lambda: queue.stats().acked == 3)
    assert [sorted(batch) for batch in seen] == [["a", "b"], ["suspect"]]
    queue.send("x", id="c")  # claimed by itself, since it could be the next suspect
    assert eventually(lambda: queue.stats().acked == 4)


def test_message_settled_by_the_handler_stays_settled(queue: Queue) -> None:
    @queue.batch_handler()
    def handle(messages: list[Message]) -> None:
        for message in messages:
            if message.payload == 0:
                message.reject("not this one")

    queue.send_many(Outgoing(n) for n in range(3))
    assert Consumer(queue).drain() == 3
    assert (queue.stats().acked, queue.stats().dead, queue.stats().missing) == (2, 1, 0)


def test_message_that_has_moved_on_does_not_stop_the_acks_of_others(queue: Queue) -> None:
    @queue.batch_handler()
    def handle(messages: list[Message]) -> None:
        if messages[0].attempt == 1:
            (stale,) = (message for message in messages if message.id == "stale")
            queue.ack(stale)
            stale.settled = False  # as the consumer sees it

    queue.send_many([Outgoing("x", id="stale"), Outgoing("x"), Outgoing("x")])
    with capture_logs() as lines:
        assert Consumer(queue).drain() == 3
    assert [line["id"] for line in lines if line["event"] == "outcome refused"] == ["stale"]
    assert (queue.stats().acked, queue.stats().inside, queue.stats().missing) == (3, 0, 0)


def test_error_of_a_batch_has_one_traceback(queue: Queue) -> None:
    @queue.batch_handler()
    def handle(_: list[Message]) -> None:
        raise ValueError("no table")

    queue.send_many(Outgoing(n) for n in range(5))
    with capture_logs() as lines:
        Consumer(queue, concurrency=1).drain()
    failed = [line for line in lines if line["event"] == "delivery failed"]
    assert [line["error"] for line in failed] == ["ValueError: no table"] * 5
    assert ["exc_info" in line for line in failed] == [True, False, False, False, False]


def test_batch_over_its_time_limit_is_logged_with_its_messages(queue: Queue, running: Callable[..., Consumer]) -> None:
    may_end = threading.Event()
    queue.batch_handler(max_messages=5, max_wait=AN_HOUR)(lambda _: may_end.wait(120) and None)
    queue.send_many(Outgoing(n, id=str(n)) for n in range(5))
    with capture_logs() as lines:
        consumer = running(queue, timeout=0.05)
        try:
            assert eventually(lambda: consumer.overran == 5)
        finally:
            may_end.set()
        assert eventually(lambda: queue.stats().acked == 5)
        assert eventually(lambda: any(line["event"] == "handler ended after its time limit" for line in lines))
    logged = [line for line in lines if line["event"] == "handler exceeded its time limit"]
    assert [(line["messages"], line["ids"]) for line in logged] == [(5, ["0", "1", "2"])]


def test_message_with_an_expired_lease_is_left_out_of_its_batch() -> None:
    given: list[Any] = []
    done = threading.Event()
    handler = BatchHandler.of(given.extend, 3, AN_HOUR)
    batching: Batching[Any] = Batching(handler, Middleware(), lambda _: False)
    batches: BatchPool[Any] = BatchPool(
        batching, False, lambda _: print, 1, lambda message: message.id != "lost", done.set
    )
    batches.start()
    try:
        messages = [Fake(name) for name in ("a", "lost", "c")]
        batches.submit(messages)
        assert done.wait(120)
        outcomes = {message.id: outcome for message, outcome in batches.outcomes()}
        assert outcomes == {"a": DONE, "lost": RELEASED, "c": DONE}
        assert [message.id for message in given] == ["a", "c"]
    finally:
        batches.stop()
        for thread in batches.threads:
            thread.join()


class Fake:
    """A delivery, as the pool sees it."""

    is_suspect = False
    payload = "x"

    def __init__(self, id: str) -> None:
        self.id = id
