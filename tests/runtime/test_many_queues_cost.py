"""A consumer of many queues: how often it calls the server for a message, while all have a backlog."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from redis import Redis

from delayq import Consumer, Outgoing, Queue, aio
from delayq.protocol.command import Command
from delayq.protocol.script import script
from delayq.runtime.engine import ConsumerEngine
from delayq.transport import executor, executor_async
from tests.harness.servers import RedisServer


def fill(client: Redis, count: int, each: int) -> list[str]:
    """Give each of `count` queues a backlog; return their names."""
    names = [f"many-{count}-{number}" for number in range(count)]
    for name in names:
        Queue(name, redis=client).send_many([Outgoing(b"x")] * each)
    return names


def scripts_a_message(client: Redis, count: int) -> float:
    """Return the scripts that a consumer of `count` queues runs for a message, without its first and last ones."""
    queues = [Queue(name, redis=client) for name in fill(client, count, 30)]
    first, last = 5 * count, 20 * count
    marks: list[int] = []
    handled, lock = 0, threading.Lock()

    def handle(_: object) -> None:
        nonlocal handled
        time.sleep(0.01)
        with lock:
            handled += 1
            if handled in (first, last):
                marks.append(int(client.info("commandstats")["cmdstat_evalsha"]["calls"]))
            if handled == last:
                consumer.stop()

    consumer = Consumer(queues, handle, concurrency=8)
    consumer.run()
    return (marks[1] - marks[0]) / (last - first)


def test_queues_without_a_permit_do_not_turn(redis_client: Redis):
    few, many = (scripts_a_message(redis_client, count) for count in (10, 20))
    assert few <= 3.2, few  # 4.3 when each wake-up made an exchange
    assert many <= 2.2 * few, (few, many)


class Tally:
    """Counts what consumers do for messages, but not what they do every second: that depends on the machine's speed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trips = 0  # that claim, fetch or settle messages
        self.turns = 0
        send, send_async, turn = executor.Executor._send, executor_async.Executor._send, ConsumerEngine._turn

        def counted(*args: Any, **options: Any) -> Any:
            self._note(args[2])
            return send(*args, **options)

        async def counted_async(*args: Any, **options: Any) -> Any:
            self._note(args[3])
            return await send_async(*args, **options)

        def counted_turn(engine: ConsumerEngine[Any]) -> Any:
            self.turns += 1
            return turn(engine)

        monkeypatch.setattr(executor.Executor, "_send", counted)
        monkeypatch.setattr(executor_async.Executor, "_send", counted_async)
        monkeypatch.setattr(ConsumerEngine, "_turn", counted_turn)

    def _note(self, calls: Sequence[Command[Any]]) -> None:
        claim, ack = script("ready_to_unack"), script("ack")
        self.trips += any(
            call.script is ack
            or (call.script is claim and call.args[13] != "0")  # the limit, after 11 keys and the time
            or call.args[0] == "MGET"
            for call in calls
        )


class Marks:
    """Notes what was counted when the first and the last message of those that count were handled."""

    def __init__(self, tally: Tally, count: int) -> None:
        self._tally = tally
        self._handled = 0
        self._first, self._last = 3 * count, 9 * count
        self._lock = threading.Lock()
        self._noted: list[tuple[int, int]] = []

    def handled(self) -> bool:
        """Note that a message was handled; return whether it was the last."""
        with self._lock:
            self._handled += 1
            if self._handled in (self._first, self._last):
                self._noted.append((self._tally.trips, self._tally.turns))
            return self._handled == self._last

    def a_message(self) -> tuple[float, ...]:
        """Return the trips and the turns for a message."""
        return tuple((after - before) / (self._last - self._first) for before, after in zip(*self._noted, strict=True))


def consume(url: str, names: Sequence[str], marks: Marks) -> None:
    def handle(_: object) -> None:
        time.sleep(0.01)
        if marks.handled():
            consumer.stop()

    with ExitStack() as stack:
        queues = [stack.enter_context(Queue(name, url=url)) for name in names]
        consumer = Consumer(queues, handle, concurrency=4)
        consumer.run()


async def consume_async(url: str, names: Sequence[str], marks: Marks) -> None:
    async def handle(_: object) -> None:
        await asyncio.sleep(0.01)
        if marks.handled():
            await consumer.stop()

    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(aio.Queue(name, url=url)) for name in names]
        consumer = aio.Consumer(queues, handle, concurrency=4)
        await consumer.run()


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_message_of_one_of_many_queues_takes_one_round_trip(
    redis_server: RedisServer, redis_client: Redis, monkeypatch: pytest.MonkeyPatch, is_async: bool
):
    """Its ack, the claim of the next message and the fetch of that one's envelope share it."""
    tally = Tally(monkeypatch)

    def measured(count: int) -> tuple[float, ...]:
        marks, names = Marks(tally, count), fill(redis_client, count, 15)
        if is_async:
            asyncio.run(consume_async(redis_server.url, names, marks))
        else:
            consume(redis_server.url, names, marks)
        redis_client.flushall()
        return marks.a_message()

    # A message whose handler a busy machine interrupts has a round trip of its own: the least of some runs counts.
    (few, few_turns), (many, many_turns) = [min(measured(count) for _ in range(3)) for count in (20, 40)]
    assert many <= 1.3, (few, many)  # 3 when a queue claimed as soon as its message had begun, and then fetched
    assert few <= 1.5, (few, many)
    assert many_turns <= 1.5 * few_turns, (few_turns, many_turns)
