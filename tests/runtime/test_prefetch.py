"""How much a consumer claims at once, and what frees its room."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue, backoff
from tests.harness.waiting import eventually

Body = Callable[[Message], object]


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=redis_client, backoff=backoff.fixed(3600)) as queue:
        yield queue


@pytest.fixture
def consume(queue: Queue) -> Iterator[Callable[[Body], Consumer]]:
    """``consume(handler)``: run it on two threads until the test ends."""
    started: list[Consumer] = []

    def start(handler: Body) -> Consumer:
        consumer = Consumer(queue, handler, concurrency=2)
        consumer.start()
        started.append(consumer)
        return consumer

    yield start
    for consumer in started:
        consumer.stop(timeout=0)


def test_consumer_holds_only_what_it_can_start_soon(queue: Queue) -> None:
    held = []

    def handle(_: Message) -> None:
        time.sleep(0.01)
        held.append(queue.stats().unack)

    queue.send_many([Outgoing(n) for n in range(200)])
    assert Consumer(queue, handle, concurrency=4).drain() == 200
    assert max(held) <= 50  # 4 run, 20 more start within a twentieth of a second, and as many may wait for their ack


def test_messages_that_never_reach_a_handler_take_no_room(
    queue: Queue, redis_client: redis.Redis, consume: Callable[[Body], Consumer]
) -> None:
    """More messages than there are threads, without a payload or with an unreadable one."""
    sents = queue.send_many([Outgoing("lost") for _ in range(20)])
    for number, sent in enumerate(sents):
        key = f"delayq:{{jobs}}:msg:{sent.id}"
        redis_client.set(key, b"unreadable") if number % 2 else redis_client.delete(key)
    queue.send_many([Outgoing("fine") for _ in range(20)])
    handled: list[Message] = []
    consume(handled.append)
    assert eventually(lambda: len(handled) == 20)
    assert {message.payload for message in handled} == {"fine"}
    assert queue.stats().dead == 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # logged below, for what it costs
def test_failing_handlers_do_not_end_threads(queue: Queue, consume: Callable[[Body], Consumer]) -> None:
    handled: list[Message] = []

    def handle(message: Message) -> None:
        match message.payload:
            case "fail":
                raise ValueError("boom")
            case "exit":
                sys.exit(3)
            case _:
                handled.append(message)

    queue.send_many([Outgoing(payload) for payload in ["fail", "exit"] * 10 + ["fine"] * 20])
    consumer = consume(handle)
    assert eventually(lambda: (len(handled), consumer.failed) == (20, 20))
    assert queue.stats().retry == 20
