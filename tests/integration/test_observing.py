"""What consumers report about themselves: what they hold, how long their handlers ran, and that they have ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue, aio, troubles
from delayq.errors import ServerUnreachable
from delayq.operations import idle, presence
from tests.harness.observed import handle
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


@pytest.fixture
def queue(any_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=any_client) as queue:
        yield queue


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let consumers send a heartbeat whenever they can."""
    monkeypatch.setattr(presence, "SECONDS", 0.0)


def runs_counted(queue: Queue) -> int:
    """How many handler runs the queue has counted."""
    return sum(queue.stats().handler_time.values())


@pytest.mark.usefixtures("often")
def test_why_names_the_consumer_that_holds_a_message_without_a_ledger(queue: Queue):
    may_end = threading.Event()
    queue.send("x", id="a")
    consumer = Consumer(queue, lambda _: may_end.wait(120) and None, name="busy")
    consumer.start()
    try:
        assert eventually(lambda: "attempt 1 is held by consumer busy until" in queue.why("a"))
    finally:
        may_end.set()
        consumer.stop()


@pytest.mark.usefixtures("often")
def test_consumer_reports_what_it_holds_and_since_when(queue: Queue):
    may_end = threading.Event()
    queue.send_many([Outgoing("x", id="m0", timeout=7200), Outgoing("x", id="m1")])
    consumer = Consumer(queue, lambda _: may_end.wait(120) and None, concurrency=2, timeout=600, name="busy")
    consumer.start()
    try:
        assert eventually(lambda: [len(each.holds) for each in queue.consumers()] == [2])
        (info,) = queue.consumers()
    finally:
        may_end.set()
        consumer.stop()
    assert (info.name, info.pid, info.concurrency, info.is_alive) == ("busy", os.getpid(), 2, True)
    assert {held.id: held.attempt for held in info.holds} == {"m0": 1, "m1": 1}
    assert {held.id: held.timeout for held in info.holds} == {"m0": 7200, "m1": 600}
    assert all(info.started_at <= held.since <= info.seen_at for held in info.holds)


@pytest.mark.usefixtures("often")
def test_handler_that_hangs_beyond_its_time_limit_is_stuck(queue: Queue):
    may_end = threading.Event()
    queue.send("x")
    consumer = Consumer(queue, lambda _: may_end.wait(120) and None, timeout=0.05, name="busy")
    consumer.start()
    try:
        expected = "1 handler runs beyond the time limit, on consumer busy."
        assert eventually(
            lambda: [each.text for each in troubles(queue.stats(), None, queue.consumers())] == [expected]
        )
        may_end.set()
        assert eventually(lambda: troubles(queue.stats(), None, queue.consumers()) == [])
    finally:
        may_end.set()
        consumer.stop()


@pytest.mark.usefixtures("often")
def test_consumer_reports_how_many_messages_it_has_handled_and_how_many_failed(queue: Queue):
    def fail(message: Message) -> bool:
        return bool(message.payload != 1)

    queue.send_many([Outgoing(n, max_retries=0) for n in range(5)])
    consumer = Consumer(queue, fail)
    consumer.start()
    try:
        assert eventually(lambda: [(each.handled, each.failed) for each in queue.consumers()] == [(5, 1)])
        assert [each.holds_count for each in queue.consumers()] == [0]
    finally:
        consumer.stop()


def test_consumer_that_ends_cleanly_is_no_longer_listed(queue: Queue):
    consumer = Consumer(queue, lambda _: None)
    queue.send("x")
    assert consumer.drain() == 1
    assert queue.consumers() == []
    consumer.start()
    queue.send("x")
    assert eventually(lambda: len(queue.consumers()) == 1)
    consumer.stop()
    assert queue.consumers() == []


@pytest.mark.usefixtures("often")
def test_consumer_that_ends_without_its_server_waits_for_it_only_once(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    def away(*_: Any) -> Iterator[Any]:
        raise ServerUnreachable("no answer within 5 s")
        yield

    monkeypatch.setattr(idle, "pass_on", away)
    consumer = Consumer(queue, lambda _: None)
    consumer.start()
    assert eventually(lambda: len(queue.consumers()) == 1)
    consumer.stop()
    assert len(queue.consumers()) == 1  # it was not asked to deregister


def test_deregister_call_is_not_repeated(queue: Queue):
    assert (
        not queue._context.shards[0].deregister("me").repeats
    )  # otherwise an end would wait for a silent server several times


PROGRAM = """
import sys, time
from delayq import Consumer, Queue
from delayq.operations import presence
presence.SECONDS = 0.0
with Queue("jobs", url=sys.argv[1]) as queue:
    Consumer(queue, lambda _: time.sleep(60), name="victim").run()
"""


def test_killed_consumer_is_still_listed_with_what_it_held(any_server: RedisServer, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(2)])
    consumer = subprocess.Popen([sys.executable, "-c", PROGRAM, any_server.url])
    try:
        assert eventually(lambda: [each.holds_count for each in queue.consumers()] == [2])
    finally:
        consumer.send_signal(signal.SIGKILL)
        consumer.wait()
    (info,) = queue.consumers()
    assert (info.name, info.pid) == ("victim", consumer.pid)
    assert sorted(held.id for held in info.holds) == ["m0", "m1"]


# -- how long handlers ran -----------------------------------------------------------------------------------------


def test_every_handler_run_is_counted_once_by_its_duration(queue: Queue):
    queue.send_many([Outgoing(n) for n in range(200)])
    slow = Outgoing("slow")
    queue.send_many([slow])
    Consumer(queue, lambda message: time.sleep(0.02) if message.payload == "slow" else None).drain()
    counted = queue.stats().handler_time
    assert sum(counted.values()) == 201
    assert sum(count for upper, count in counted.items() if upper >= 32) >= 1


def test_handlers_in_processes_are_counted(queue: Queue):
    queue.send_many([Outgoing(n) for n in range(5)])
    Consumer(queue, handle, pool="process", concurrency=1).drain()
    assert runs_counted(queue) == 5


def test_batch_counts_as_one_handler_run(queue: Queue):
    @queue.batch_handler(max_messages=10, max_wait=3600)
    def all_of(_: Any) -> None: ...

    queue.send_many([Outgoing(n) for n in range(10)])
    Consumer(queue).drain()
    assert runs_counted(queue) == 1


def test_async_handlers_and_their_batches_are_counted(any_server: RedisServer, queue: Queue):
    async def handle(_: Any) -> None: ...

    async def drain() -> None:
        async with aio.Queue("jobs", url=any_server.url) as jobs:
            await jobs.send_many([Outgoing(n) for n in range(10)])
            await aio.Consumer(jobs, handle).drain()
            assert runs_counted(queue) == 10
            jobs.batch_handler(handle)
            await jobs.send_many([Outgoing(n) for n in range(10)])
            await aio.Consumer(jobs).drain()
            assert await jobs.consumers() == []

    asyncio.run(drain())
    assert runs_counted(queue) == 11


def test_handlers_of_several_queues_are_counted_separately(any_client: redis.Redis, queue: Queue):
    with Queue("mail", redis=any_client) as mail:
        queue.send_many([Outgoing(n) for n in range(3)])
        mail.send("x")
        Consumer([queue, mail], lambda _: None).drain()
        assert (runs_counted(queue), runs_counted(mail)) == (3, 1)
        assert queue.consumers() == mail.consumers() == []


@pytest.mark.usefixtures("often")
def test_handler_times_of_a_refused_heartbeat_go_with_the_next(queue: Queue, any_client: redis.Redis):
    key = "delayq:{jobs}:consumers"
    may_go_on = threading.Event()

    def handle(message: Message) -> None:
        if message.payload == "last":
            any_client.delete(key)
            may_go_on.wait(120)

    any_client.set(key, "overwritten")
    queue.send_many([Outgoing(n) for n in range(10)])
    consumer = Consumer(queue, handle, concurrency=1)
    consumer.start()
    assert eventually(lambda: consumer.handled == 10)
    assert runs_counted(queue) == 0
    queue.send("last")
    assert eventually(lambda: runs_counted(queue) == 10)
    may_go_on.set()
    consumer.stop()
    assert runs_counted(queue) == 11


# -- samples ---------------------------------------------------------------------------------------------------------


def test_consumer_keeps_samples(queue: Queue):
    queue.send("x")
    Consumer(queue, lambda _: None).drain()
    assert len(queue.samples()) == 1


def test_history_of_a_queue_is_bounded(queue: Queue, any_client: Any):
    """A day of a queue that has counted everything that can be counted, in large numbers."""
    now = [1_700_000_400_000.0]  # when a ten-minute period begins
    keys = queue._context.shards[0].keys
    times = {f"{kind}:{bucket}": 10**7 + bucket for kind in ("late", "took") for bucket in range(20)}
    counters = dict.fromkeys(queue.stats().COUNTERS, 10**9)
    with Queue("jobs", redis=any_client, clock=lambda: now[0]) as clocked:
        clocked.send("x")
        any_client.hset(keys.stats, mapping=times | counters)
        for _ in range(24 * 60):
            clocked.sample()
            now[0] += 60_000
        assert len(clocked.samples()) == 60 + 138
    used = [any_client.memory_usage(key, samples=0) for key in (keys.samples_minute, keys.samples_ten)]
    assert sum(used) < 200_000
