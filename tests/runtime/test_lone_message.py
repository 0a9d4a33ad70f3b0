"""A message that comes alone to an idle consumer: its claim, its ack, and nothing else."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import redis

import delayq
from delayq import Consumer, Message, Queue, aio
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

CLAIM = ["plan_sleep", "pending_to_ready", "ready_to_unack"]
OURS = str(Path(delayq.__file__).parent)
MESSAGES = 10
SYNC_CALLS, ASYNC_CALLS = 345, 445  # a twentieth above what was measured; resuming a generator counts, as in a profile


@contextmanager
def consuming(consumer: Consumer) -> Iterator[None]:
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(timeout=5)


def is_asleep(client: Any, shards: int = 1) -> bool:
    return bool(client.info("clients")["blocked_clients"] == shards)


def noting(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The calls of each round trip of the queue from now on."""
    trips: list[list[str]] = []
    run = queue._executor.run

    def note(calls: Sequence[Any], repeat: bool = True) -> Any:
        trips.append([call.script.name if call.script else call.args[0] for call in calls])
        return run(calls, repeat)

    monkeypatch.setattr(queue._executor, "run", note)
    return trips


def warmed(queue: Queue, handled: list[Any], client: Any) -> None:
    """Wait until a consumer has handled a message and sleeps: its first turns look after the queue."""
    queue.send("warm")
    assert eventually(lambda: bool(handled) and is_asleep(client))
    handled.clear()


def test_ack_of_a_lone_message_claims_nothing(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = redis_server.client()
    handled: list[Message] = []
    queue, sender = Queue("lone", url=redis_server.url), Queue("lone", url=redis_server.url)
    with queue, sender, consuming(Consumer(queue, handled.append)):
        warmed(sender, handled, client)
        trips = noting(queue, monkeypatch)
        sender.send("x")
        assert eventually(lambda: ["ack"] in trips)
        assert [call for trip in trips for call in trip if call in CLAIM] == CLAIM, trips
        assert eventually(lambda: sender.stats().acked == 2 and is_asleep(client))


@pytest.mark.parametrize("shards", [1, 3])
def test_messages_that_handlers_send_while_their_consumer_is_alone_come_at_once(
    redis_client: redis.Redis, shards: int
) -> None:
    """They ring: no ack claims them."""
    queue, times = Queue("chained", redis=redis_client, shards=shards), list[float]()

    def handle(message: Message) -> None:
        times.append(time.monotonic())
        if message.payload:
            queue.send(message.payload - 1)

    with consuming(Consumer(queue, handle)):
        queue.send(20)
        assert eventually(lambda: len(times) == 21)
    assert times[-1] - times[0] < 5  # and not after a poll each, which takes a second


def test_place_that_an_ack_frees_is_used_at_once(redis_client: redis.Redis) -> None:
    """In a queue with limits, an ack comes with a claim: the place may be for a message that waits."""
    queue = Queue("limited", redis=redis_client, concurrency=1)
    times: list[float] = []

    def handle(_: Message) -> None:
        times.append(time.monotonic())
        time.sleep(0.05)

    with consuming(Consumer(queue, handle, concurrency=4)):
        for _ in range(8):
            queue.send("x")
        assert eventually(lambda: len(times) == 8)
    assert times[-1] - times[0] < 5


def test_retry_without_delay_comes_at_once(redis_client: redis.Redis) -> None:
    queue = Queue("again", redis=redis_client, backoff=delayq.backoff.fixed(0), max_retries=10)
    times: list[float] = []

    def fail(_: Message) -> None:
        times.append(time.monotonic())
        raise ValueError

    with consuming(Consumer(queue, fail)):
        queue.send("x")
        assert eventually(lambda: len(times) == 11)
    assert times[-1] - times[0] < 5


class Calls:
    """Counts the calls of delayq's functions, as a profiler."""

    def __init__(self) -> None:
        self.count = 0
        self.counts = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.counts and event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.count += 1


def send_alone(sender: Queue, handled: list[Any], calls: Calls) -> float:
    """Send messages, each to an idle consumer; return how many functions were called for one, without the send."""
    for _ in range(MESSAGES):
        before = len(handled)
        sender.send("x")
        calls.counts = True
        assert eventually(lambda count=before: len(handled) > count)  # type: ignore[misc]
        time.sleep(0.1)
        calls.counts = False
    return calls.count / MESSAGES


def test_thread_calls_few_functions_for_a_lone_message(redis_server: RedisServer) -> None:
    handled, calls = list[Message](), Calls()
    queue, sender = Queue("few", url=redis_server.url), Queue("few", url=redis_server.url)
    threading.setprofile(calls)
    try:
        with queue, sender, consuming(Consumer(queue, handled.append)):
            warmed(sender, handled, redis_server.client())
            assert send_alone(sender, handled, calls) <= SYNC_CALLS
    finally:
        threading.setprofile(None)


def test_event_loop_calls_few_functions_for_a_lone_message(redis_server: RedisServer) -> None:
    handled, calls = list[aio.Message](), Calls()

    async def handle(message: aio.Message) -> None:
        handled.append(message)

    async def consume(send: Callable[[], float]) -> float:
        async with aio.Queue("few", url=redis_server.url) as queue:
            consumer = aio.Consumer(queue, handle)
            await consumer.start()
            try:
                return await asyncio.to_thread(send)
            finally:
                await consumer.stop()

    def send() -> float:
        with Queue("few", url=redis_server.url) as sender:
            warmed(sender, handled, redis_server.client())
            return send_alone(sender, handled, calls)

    sys.setprofile(calls)
    try:
        assert asyncio.run(consume(send)) <= ASYNC_CALLS
    finally:
        sys.setprofile(None)
