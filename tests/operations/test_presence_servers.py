"""Consumers send heartbeats whether they are idle or busy, and what that costs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import redis

from delayq import Consumer, Outgoing, Queue, aio
from delayq.errors import ServerError
from delayq.model.consumer_info import describe
from delayq.operations import presence
from delayq.protocol.command import Command
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

KEY = "delayq:{jobs}:consumers"
OTHER_KEY = "delayq:{mail}:consumers"

Trips = list[list[str]]


@pytest.fixture
def queue(any_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=any_client) as queue:
        yield queue


@pytest.fixture
def trips(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Trips:
    """The commands of each round trip of the queue."""
    made: Trips = []
    run = queue._executor.run

    def note(calls: Sequence[Command[Any]], repeat: bool = True) -> Any:
        made.append([str(call.script.name if call.script else call.args[0]) for call in calls])
        return run(calls, repeat)

    monkeypatch.setattr(queue._executor, "run", note)
    return made


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let consumers send a heartbeat whenever they can."""
    monkeypatch.setattr(presence, "SECONDS", 0.0)


@pytest.fixture
def start() -> Iterator[Callable[..., Consumer]]:
    """``start(queue, handler, …)``: a started consumer, stopped after the test."""
    started: list[Consumer] = []

    def start(*args: Any, **options: Any) -> Consumer:
        started.append(Consumer(*args, **options))
        started[-1].start()
        return started[-1]

    yield start
    for consumer in started:
        consumer.stop(timeout=5)


def seen(client: Any, key: str = KEY) -> dict[str, float]:
    """When consumers were last seen, by name."""
    return {name.decode(): score for name, score in client.zrange(key, 0, -1, withscores=True)}


def appeared(trips: Trips) -> int:
    return sum(trip.count("heartbeat") for trip in trips)


def test_busy_consumer_is_recorded_once(queue: Queue, trips: Trips, any_client: redis.Redis) -> None:
    queue.send_many([Outgoing(n) for n in range(1000)])
    consumer = Consumer(queue, lambda _: None)
    assert consumer.drain() == 1000
    assert appeared(trips) == 1
    assert list(seen(any_client)) == [consumer.name]


@pytest.mark.usefixtures("often")
def test_heartbeat_takes_no_extra_round_trip(queue: Queue, trips: Trips, start: Callable[..., Consumer]) -> None:
    queue.send_many([Outgoing(n) for n in range(100)])
    start(queue, lambda _: None)
    assert eventually(lambda: sum("poll_idle" in trip for trip in trips) > 1)  # it is idle
    trips = list(trips)
    assert all(trip.count("heartbeat") <= 1 for trip in trips)
    assert ["heartbeat"] not in trips
    assert ["poll_idle", "heartbeat", "sample"] in trips


@pytest.mark.full
@pytest.mark.usefixtures("often")
def test_idle_consumer_keeps_sending_heartbeats_without_extra_wake_ups(
    queue: Queue, any_client: redis.Redis, start: Callable[..., Consumer], trips: Trips
) -> None:
    start(queue, lambda _: None, name="idle")
    assert eventually(lambda: "idle" in seen(any_client))
    first = seen(any_client)["idle"]
    begun = len(trips)
    assert eventually(lambda: seen(any_client)["idle"] >= first + 2000)
    made = len(trips) - begun
    assert made <= (seen(any_client)["idle"] - first) / 1000 + 2  # one a second, as without heartbeats


@pytest.mark.usefixtures("often")
def test_consumer_without_room_keeps_sending_heartbeats(
    queue: Queue, any_client: redis.Redis, start: Callable[..., Consumer]
) -> None:
    runs, may_end = threading.Event(), threading.Event()

    def handle(_: Any) -> None:
        runs.set()
        may_end.wait(120)

    queue.send_many([Outgoing(n) for n in range(3)])
    start(queue, handle, concurrency=1, name="busy")
    assert runs.wait(120)
    assert eventually(lambda: "busy" in seen(any_client))
    first = seen(any_client)["busy"]
    assert eventually(lambda: seen(any_client)["busy"] > first)
    may_end.set()


def test_consumer_of_several_queues_is_recorded_in_each(queue: Queue, any_client: redis.Redis) -> None:
    with Queue("mail", redis=any_client) as mail:
        queue.send("x")
        mail.send("x")
        consumer = Consumer([queue, mail], lambda _: None, name="both")
        consumer.drain()
    assert list(seen(any_client)) == list(seen(any_client, OTHER_KEY)) == ["both"]


def test_async_consumer_of_several_queues_is_recorded_in_each(any_server: RedisServer, any_client: redis.Redis) -> None:
    async def handle(_: Any) -> None: ...

    async def drain() -> None:
        queues = [aio.Queue(name, url=any_server.url) for name in ("jobs", "mail")]
        for queue in queues:
            await queue.send("x")
        await aio.Consumer(queues, handle, name="both").drain()
        for queue in queues:
            await queue.close()

    asyncio.run(drain())
    assert list(seen(any_client)) == list(seen(any_client, OTHER_KEY)) == ["both"]


def test_consumer_of_a_sharded_queue_is_recorded_on_the_first_shard(any_client: redis.Redis) -> None:
    with Queue("jobs", redis=any_client, shards=3) as queue:
        queue.send("x")
        Consumer(queue, lambda _: None, name="wide").drain()
        assert list(seen(any_client)) == ["wide"]
        assert any_client.keys("*consumers") == [KEY.encode()]


@pytest.mark.usefixtures("often")
def test_refused_heartbeat_loses_no_message(queue: Queue, any_client: redis.Redis) -> None:
    any_client.set(KEY, "overwritten")
    queue.send_many([Outgoing(n) for n in range(10)])
    handled: list[Any] = []
    assert Consumer(queue, handled.append).drain() == 10
    assert any_client.get(KEY) == b"overwritten"
    with pytest.raises(Exception, match="WRONGTYPE"):
        queue.why("x")


@pytest.mark.usefixtures("often")
def test_error_of_a_round_trip_reaches_its_caller(queue: Queue, trips: Trips, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send("x")
    queue.receive()[0].release()
    run = queue._executor.run

    def lose(calls: Sequence[Command[Any]], repeat: bool = True) -> Any:
        run(calls, repeat)
        raise LookupError("lost")

    monkeypatch.setattr(queue._executor, "run", lose)
    with pytest.raises(LookupError):
        queue.receive()
    assert {"heartbeat", "sample"} <= set(trips[-1])  # and those of the upkeep, if a second has passed


def test_refused_consumer_is_not_recorded(queue: Queue, any_client: redis.Redis) -> None:
    queue.send("x")
    any_client.set("delayq:{jobs}:unack", "overwritten")
    for _ in range(3):
        with pytest.raises(ServerError):
            queue.receive()
    any_client.delete("delayq:{jobs}:unack")
    assert seen(any_client) == {}
    assert len(queue.receive()) == 1
    assert len(seen(any_client)) == 1


def test_large_fleet_is_known_completely(redis_client: redis.Redis) -> None:
    queue = Queue("jobs", redis=redis_client)
    queue.send("x")
    document = describe(1, time.monotonic())
    scripts = queue._context.shards[0]
    calls = [scripts.heartbeat(f"c{n}", document) for n in range(1500)]
    queue._executor.run(calls)
    assert len(queue.consumers()) == 1500
