"""The ledger of a queue in use: one entry for each counted step, and each message is where its last entry says."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from delayq import Ack, Consumer, Message, Outgoing, Queue, Reject, RetryAfter, aio, backoff, doctor
from delayq.operations import schedule_chain
from tests.harness import bookkeeping
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

MESSAGES = 200
ALL = {
    *("sent", "promoted", "delivered", "acked", "nacked", "lease_lost", "released", "died", "expired", "cancelled"),
    *("rescheduled", "replaced", "requeued", "purged"),
}
OPTIONS: dict[str, Any] = {"backoff": backoff.fixed(0.01), "lease": 5}


def act(message: Message) -> Any:
    """Do what handlers do, according to the message's payload."""
    reactions: Sequence[Callable[[], Any]] = (
        lambda: None,
        lambda: False,
        lambda: Ack(then=[Outgoing(0), Outgoing(0, id="again", on_conflict="replace")]),
        lambda: fail(Reject("unwanted")),
        lambda: fail(RetryAfter(0.01)),
        lambda: fail(ValueError("broken")),
    )
    return reactions[message.payload if message.attempt == 1 else 0]()


def fail(error: Exception) -> None:
    raise error


async def act_async(message: Message) -> Any:
    return act(message)


def act_on_all(messages: list[Message]) -> dict[str, Any]:
    return {message.id: Reject("unwanted") for message in messages if message.payload == 3}


@contextmanager
def at_work(url: str, keyed: bool, **options: Any) -> Iterator[None]:
    """Sync and async consumers, and one of batches, each with its own client. They hand back what they hold."""
    sharing: dict[str, Any] = {"concurrency_key": lambda message: message.headers["tenant"]} if keyed else {}
    with ExitStack() as stack:
        for _ in range(2):
            queue = stack.enter_context(Queue("work", url=url, **OPTIONS, **sharing, **options))
            consumer = Consumer(queue, act, concurrency=3)
            consumer.start()
            stack.callback(consumer.stop)
        batched = stack.enter_context(Queue("work", url=url, **OPTIONS, **options))
        if not keyed:
            batched.batch_handler(max_messages=10, max_wait=0.01)(act_on_all)
            consumer = Consumer(batched, concurrency=1)
            consumer.start()
            stack.callback(consumer.stop)
        stack.enter_context(_async_consumer(url, sharing | options))
        yield


@contextmanager
def _async_consumer(url: str, options: dict[str, Any]) -> Iterator[None]:
    ends: list[Callable[[], object]] = []

    async def consume() -> None:
        async with aio.Queue("work", url=url, **OPTIONS, **options) as queue:
            end, loop = asyncio.Event(), asyncio.get_running_loop()
            consumer = aio.Consumer(queue, act_async, concurrency=3)
            await consumer.start()
            ends.append(lambda: loop.call_soon_threadsafe(end.set))
            await end.wait()
            await consumer.stop()

    thread = threading.Thread(target=asyncio.run, args=(consume(),))
    thread.start()
    assert eventually(lambda: bool(ends))
    yield
    ends[0]()
    thread.join()


def keep_busy(queue: Queue, dice: random.Random) -> None:
    """Send messages, and do everything to them that can be done from outside."""
    for n in range(MESSAGES):
        tenant = {"tenant": dice.choice("abc")}
        options: dict[str, Any] = (
            {"id": f"m{n % 200}", "on_conflict": dice.choice(("ignore", "replace"))} if n % 3 else {}
        )
        queue.send(dice.randrange(6), delay=dice.choice((0, 0, 0.01)), headers=tenant, max_retries=2, **options)
        if n % 10 == 5:
            queue.cancel(f"m{dice.randrange(150)}")
            queue.reschedule(f"m{dice.randrange(150)}", delay=0.01)
        if n % 50 == 25:
            queue.dead.requeue(delay=0.01)
        if n % 50 == 45:
            queue.dead.redrive()
    queue.send_many(Outgoing(0, id=f"far{n}", delay=3600) for n in range(5))
    queue.cancel("far0")
    queue.reschedule("far1", delay=7200)
    queue.send(0, id="far2", delay=3600, on_conflict="replace")


def fault_lines(queue: Queue) -> None:
    """Cause what consumers do not do when all goes well, while there are none."""
    queue.send_many(Outgoing(0, id=f"by hand {n}", headers={"tenant": "z"}) for n in range(5))
    queue.send(0, id="late", headers={"tenant": "z"}, expires_in=0.001)
    queue.send(0, id="lost", headers={"tenant": "z"}, max_retries=5)
    queue.send("x", id="edited", headers={"tenant": "z"})
    time.sleep(0.002)  # until one has expired
    held = {message.id: message for message in queue.receive(20, lease=60)}
    held["by hand 0"].release()
    held["by hand 1"].nack(delay=0)
    held["by hand 2"].ack()
    queue.cancel("by hand 3")
    held["by hand 3"].nack()
    queue.send(0, id="by hand 4", headers={"tenant": "z"}, on_conflict="replace")
    held["edited"].reject("unwanted")
    assert queue.dead.edit("edited", 0)
    held["lost"].extend(0.001)


def is_done(queue: Queue) -> bool:
    stats = queue.stats()
    return (stats.ready, stats.unack, stats.retry, stats.garbage) == (0, 0, 0, 0) and stats.pending <= 4


def mixed(url: str, keyed: bool, **options: Any) -> Counter[str]:
    """Run everything at once, and return what the ledger holds at the end, after checking it."""
    with Queue("work", url=url, **OPTIONS, **options) as queue:
        queue.configure(events=1_000_000)
        if keyed:
            queue.configure(concurrency_per_key=1)
        fault_lines(queue)
        with at_work(url, keyed, **options):
            keep_busy(queue, random.Random(1))
            assert eventually(lambda: is_done(queue)), queue.stats()
        bookkeeping.check(queue)
        queue.dead.purge()
        queue.purge("pending")
        noted = bookkeeping.check(queue)
        assert queue.stats().missing == 0
        assert doctor.examine(queue).healthy
        return noted


@pytest.mark.parametrize(
    ("keyed", "shards"),
    [(False, 1), pytest.param(True, 1, marks=pytest.mark.full), pytest.param(False, 3, marks=pytest.mark.full)],
    ids=["", "keys", "shards"],
)
def test_each_event_has_as_many_entries_as_were_counted(any_server: RedisServer, keyed: bool, shards: int):
    noted = mixed(any_server.url, keyed, shards=shards)
    assert ALL - set(noted) == set()
    assert ("held_back" in noted) is keyed


@pytest.mark.full
def test_ledger_of_a_queue_on_a_cluster(cluster_url: str):
    noted = mixed(cluster_url, keyed=False, shards=3)
    assert ALL - set(noted) == set()


def test_each_shard_keeps_its_own_ledger(redis_server: RedisServer):
    with Queue("work", url=redis_server.url, shards=3) as queue:
        queue.configure(events=5000)
        queue.send_many(Outgoing(n) for n in range(60))
        assert Consumer(queue, lambda _: None).drain() == 60
        client: Any = queue._executor.client
        lengths = [client.xlen(scripts.keys.events) for scripts in queue._context.shards]
        assert [client.hget(scripts.keys.meta, "events") for scripts in queue._context.shards] == [b"5000"] * 3
        assert min(lengths) > 0
        assert queue.events.length() == sum(bookkeeping.check(queue).values()) == 4 * 60


def test_shard_that_cannot_store_the_ledger_setting_does_not_block_the_others(redis_server: RedisServer):
    with Queue("jobs", url=redis_server.url, shards=3, events=True) as queue, redis_server.client() as client:
        queue.stats()  # finds out how many shards there are
        *_, broken = (scripts.keys.meta for scripts in queue._context.shards)
        client.set(broken, "another program's")
        sent = [queue.send(n, id=f"m{n}") for n in range(20) if queue._context.shard(f"m{n}").keys.meta != broken]
        with Queue("jobs", url=redis_server.url, shards=3, events=5000) as other:
            messages = other.receive(20)
            assert len(messages) == len(sent) > 1
            client.hdel(queue._context.shards[0].keys.meta, "events")  # an operator's change is not undone meanwhile
            assert all(other.ack(messages))
            client.delete(broken)
            assert other.receive() == []
        kept = [client.hget(scripts.keys.meta, "events") for scripts in queue._context.shards]
        assert kept == [None, b"100000", b"5000"]


def test_lost_lease_is_recorded_once_with_several_consumers(any_server: RedisServer):
    with Queue("work", url=any_server.url, events=True) as queue:
        queue.send("x", id="a")
        assert len(queue.receive(lease=0.001)) == 1
        handled: list[int] = []
        consumers = [Consumer(queue, lambda message: handled.append(message.attempt)) for _ in range(3)]
        for consumer in consumers:
            consumer.start()
        assert eventually(lambda: queue.stats().acked == 1)
        for consumer in consumers:
            consumer.stop()
        found = [(entry["event"], entry["attempt"]) for entry in bookkeeping.entries(queue)]
        assert found == [
            ("sent", ""),
            ("promoted", ""),
            ("delivered", "1"),
            ("lease_lost", "1"),
            ("delivered", "2"),
            ("acked", "2"),
        ]
        assert handled == [2]


def test_occurrences_of_a_schedule_are_recorded(any_server: RedisServer):
    with Queue("work", url=any_server.url, events=True) as queue:
        queue.schedules.add("tick", "every 1d")
        (first,) = queue.peek("pending")
        queue.schedules.add("tick", "every 2d")
        queue.schedules.run_now("tick")
        assert Consumer(queue, lambda _: None).drain() == 1
        queue.schedules.pause("tick")
        queue.schedules.resume("tick")
        queue.execute(schedule_chain.revive)
        queue.schedules.remove("tick")
        noted = bookkeeping.check(queue)
        assert noted["sent"] == noted["acked"] + noted["cancelled"]
        reasons = {entry["reason"] for entry in bookkeeping.entries(queue) if entry["event"] == "cancelled"}
        assert reasons == {"its schedule has changed"}
        assert first.id in {entry["id"] for entry in bookkeeping.entries(queue) if entry["event"] == "cancelled"}


def test_consumer_of_several_queues_keeps_the_ledgers_that_are_on(any_server: RedisServer):
    with ExitStack() as stack:
        first, second, third = (
            stack.enter_context(Queue(name, url=any_server.url, events=events))
            for name, events in (("first", True), ("second", 50), ("third", None))
        )
        for queue in (first, second, third):
            queue.send_many(Outgoing(n) for n in range(5))
        assert Consumer([first, second, third], lambda _: None).drain() == 15
        for queue in (first, second):
            assert bookkeeping.check(queue) == dict.fromkeys(("sent", "promoted", "delivered", "acked"), 5)
        assert bookkeeping.entries(third) == []


def test_repairs_of_the_doctor_are_recorded(any_server: RedisServer):
    with Queue("work", url=any_server.url, events=True) as queue:
        queue.send("x", id="bare", delay=60)
        client: Any = queue._executor.client
        keys = queue._context.shards[0].keys
        client.delete(keys.message("bare"))
        client.set(keys.message("stray"), "x")
        assert doctor.examine(queue, repair=True).healthy
        noted = bookkeeping.check(queue)
        assert (noted["died"], noted["repaired"]) == (2, 2)
