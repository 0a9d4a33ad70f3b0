"""What a message costs: round trips, and memory on the server."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import pytest
import redis

from delayq import Consumer, Outgoing, Queue
from delayq.queue_names import Server
from delayq.types import QueueStats
from tests.harness.waiting import eventually


@pytest.fixture
def queue(redis_client: redis.Redis) -> Queue:
    queue = Queue("jobs", redis=redis_client)
    queue.send("recorded")
    for message in queue.receive():
        message.ack()
    return queue


@pytest.fixture
def trips(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each round trip of the queue has had."""
    made: list[int] = []
    run = queue._executor.run

    def note(calls: Sequence[Any], repeat: bool = True) -> Any:
        made.append(len(calls))
        return run(calls, repeat)

    monkeypatch.setattr(queue._executor, "run", note)
    return made


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"id": "a"}, {"id": "a", "on_conflict": "replace"}], ids=repr)
def test_send_takes_one_round_trip(queue: Queue, trips: list[int], options: dict[str, Any]) -> None:
    queue.send("x", **options)
    assert len(trips) == 1


def test_send_to_a_ledger_takes_one_round_trip_once_it_is_known(queue: Queue, trips: list[int]) -> None:
    queue.send("x")
    queue.configure(events=1000)
    trips.clear()
    queue.send("y")
    assert trips == [1]


def test_pulled_delivery_takes_three_round_trips(queue: Queue, trips: list[int]) -> None:
    """One to claim, one to fetch and one to ack, for up to 32 messages when nothing is known about their size."""
    queue.send_many([Outgoing(n) for n in range(32)])
    trips.clear()
    assert queue.ack(queue.receive(32)) == [True] * 32
    assert len(trips) == 3


def test_deliveries_to_a_quick_handler_share_round_trips(
    queue: Queue, trips: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        time, "perf_counter", itertools.count(0.0, 1e-5).__next__
    )  # counts as quick, whatever the machine does
    queue.send_many([Outgoing(n) for n in range(1000)])
    trips.clear()
    assert Consumer(queue, lambda _: None).drain() == 1000
    assert len(trips) <= 200


def test_waiting_message_takes_only_the_memory_of_its_payload_and_its_place(
    queue: Queue, redis_client: redis.Redis
) -> None:
    """Within a tenth, since the server's tables may have just grown."""
    client: Any = redis_client

    def used() -> int:
        return int(client.info("memory")["used_memory"])

    def send() -> None:
        queue.send_many([Outgoing(b"x" * 100, delay=3600) for _ in range(20_000)])

    send()
    places = client.zrange("delayq:{jobs}:pending", 0, -1, withscores=True)
    keys = [b"delayq:{jobs}:msg:" + name for name, _ in places]
    payloads = client.mget(keys)
    client.execute_command("FLUSHALL", "SYNC")  # otherwise Valkey frees the memory later
    before = used()
    for start in range(0, len(keys), 250):
        part = slice(start, start + 250)
        client.mset(dict(zip(keys[part], payloads[part], strict=True)))
        client.zadd("pending", dict(places[part]))
    bare = used() - before
    client.execute_command("FLUSHALL", "SYNC")
    before = used()
    send()
    assert eventually(lambda: used() - before <= 1.1 * bare)  # buffers shrink once their client is idle


def test_many_queues_share_round_trips(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"q{n:02}" for n in range(50)]
    for name in names:
        with Queue(name, redis=redis_client) as each:
            each.send("x", delay=60)
            each.schedules.add("nightly", "@daily")
    server = Server(None, redis_client, "delayq", "a test")
    made: list[int] = []
    run = server._executor.run

    def note(calls: Sequence[Any], repeat: bool = True) -> Any:
        made.append(len(calls))
        return run(calls, repeat)

    monkeypatch.setattr(server._executor, "run", note)
    assert [each.pending for each in server.stats_of(names) if isinstance(each, QueueStats)] == [2] * 50
    assert [[each.name for each in found] for found in server.schedules_of(names)] == [["nightly"]] * 50
    assert len(made) <= 6
    server.close()
