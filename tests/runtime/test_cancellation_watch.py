"""`cancel(running=True)`: each way of running a handler, and messages that a stop must not hit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Queue, aio, backoff
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation
from tests.harness import pooled
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

WITHIN = 20.0  # seconds: 2 on a machine that is not busy


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url, backoff=backoff.fixed(0)) as queue:
        queue.configure(events=100)
        yield queue


@contextlib.contextmanager
def consuming(queue: Queue, handler: Any, **options: Any) -> Iterator[Consumer]:
    consumer = Consumer(queue, handler, shutdown_timeout=0.1, **options)
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.stop()


@contextlib.contextmanager
def consuming_async(url: str, handler: Any, **options: Any) -> Iterator[None]:
    """Run an async consumer on a thread of its own."""
    consumers: list[tuple[aio.Consumer, asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        async with aio.Queue("jobs", url=url, backoff=backoff.fixed(0)) as queue:
            consumer = aio.Consumer(queue, handler, shutdown_timeout=0.1, **options)
            consumers.append((consumer, asyncio.get_running_loop()))
            await consumer.run()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield
    finally:
        assert eventually(lambda: bool(consumers))
        consumer, events = consumers[0]
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(consumer.stop(), events).result()
        thread.join()


def ends(queue: Queue, *cancelled: str, running: int = 0) -> None:
    """Check that these messages count as cancelled, and that nothing is left of them or of the requests."""
    assert eventually(lambda: queue.stats().cancelled == len(cancelled), WITHIN), queue.stats()
    stats = queue.stats()
    assert (stats.unack, stats.retry, stats.dead, stats.nacked) == (running, 0, 0, 0)
    for each in cancelled:
        assert queue.get(each) is None
        last = queue.history(each)[-1]
        assert (last.event, last.reason) == ("cancelled", "stopped")
        assert "cancelled" in queue.why(each)
    assert eventually(lambda: queue.execute(_requests) == 0, WITHIN)


def _requests(context: QueueContext) -> Operation[int]:
    """Count what is stored about cancelled deliveries that have not ended."""
    keys = context.shards[0].keys
    stops, cancelled = yield [
        Command(key, (word, key), int) for key, word in ((keys.stops, "ZCARD"), (keys.cancelled, "SCARD"))
    ]
    assert cancelled <= stops
    return int(stops)


def test_thread_sees_the_stop_and_gives_up(queue: Queue) -> None:
    began = threading.Event()

    def handle(message: Message) -> None:
        assert not message.cancelled
        began.set()
        assert eventually(lambda: message.cancelled, WITHIN)
        raise InterruptedError

    queue.send("x", id="a")
    with consuming(queue, handle) as consumer:
        assert began.wait(WITHIN)
        assert queue.cancel("a", running=True) == "stopping"
        assert queue.cancel("a", running=True) == "stopping"  # twice is as once
        ends(queue, "a")
        assert queue.cancel("a", running=True) == "unknown"
        assert consumer.failed == 0


def test_handler_that_returns_nevertheless_acks(queue: Queue) -> None:
    began = threading.Event()

    def handle(message: Message) -> None:
        began.set()
        assert eventually(lambda: message.cancelled, WITHIN)

    queue.send("x", id="a")
    with consuming(queue, handle):
        assert began.wait(WITHIN)
        assert queue.cancel("a", running=True) == "stopping"
        assert eventually(lambda: queue.stats().acked == 1, WITHIN)
    assert queue.stats().cancelled == 0


def test_async_handler_is_cancelled_and_the_others_run_on(queue: Queue, redis_server: RedisServer) -> None:
    began, ended, may_end = set(), [], threading.Event()

    async def handle(message: aio.Message) -> None:
        began.add(message.id)
        try:
            while not may_end.is_set():  # noqa: ASYNC110  # another thread sets it
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            ended.append(message.id)
            raise

    for each in "abc":
        queue.send("x", id=each)
    with consuming_async(redis_server.url, handle):
        assert eventually(lambda: began == set("abc"), WITHIN)
        assert queue.cancel("b", running=True) == "stopping"
        ends(queue, "b", running=2)
        may_end.set()
        assert eventually(lambda: queue.stats().acked == 2, WITHIN)
    assert ended == ["b"]


@pytest.mark.parametrize("how", ["swallows", "other error"])
def test_async_handler_that_swallows_the_cancel_acks_and_one_that_turns_it_into_an_error_does_not(
    queue: Queue, redis_server: RedisServer, how: str
) -> None:
    began = threading.Event()

    async def handle(_: aio.Message) -> None:
        began.set()
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            if how == "other error":
                raise ConnectionError from None

    queue.send("x", id="a")
    with consuming_async(redis_server.url, handle):
        assert began.wait(WITHIN)
        assert queue.cancel("a", running=True) == "stopping"
        if how == "swallows":
            assert eventually(lambda: queue.stats().acked == 1, WITHIN)
        else:
            ends(queue, "a")


def test_plain_handler_beside_async_ones_is_notified_and_not_abandoned(queue: Queue, redis_server: RedisServer) -> None:
    began, seen = threading.Event(), threading.Event()

    async def unused(_: aio.Message) -> None: ...

    def handle(message: aio.Message) -> None:
        began.set()
        assert eventually(lambda: message.cancelled, WITHIN)
        assert queue.stats().unack == 1  # its delivery lasts until it ends
        seen.set()
        raise InterruptedError

    async def run() -> None:
        async with aio.Queue("jobs", url=redis_server.url) as mine:
            mine.cron("0 0 1 1 *", name="yearly")(unused)
            consumer = aio.Consumer(mine, handle)
            await consumer.start()
            assert await asyncio.to_thread(began.wait, WITHIN)
            assert await mine.cancel("a", running=True) == "stopping"
            assert await asyncio.to_thread(seen.wait, WITHIN)
            await asyncio.to_thread(ends, queue, "a")
            await consumer.stop()

    queue.send("x", id="a")
    asyncio.run(run())


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("payload", ["deaf", "dies"])
def test_process_ends_with_its_children_and_the_next_message_is_not_hit(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, payload: str
) -> None:
    monkeypatch.setenv(pooled.WHERE, str(tmp_path))
    queue.send(payload, id="a")
    with consuming(queue, pooled.stubborn, pool="process", concurrency=1):
        assert eventually(lambda: bool(pooled.notes("stubborn")), WITHIN)
        queue.send("quick", id="next")
        (line,) = [each for each in (tmp_path / "notes").read_text().splitlines() if each.startswith("child-")]
        child, pid = int(line.split("\t")[0].removeprefix("child-")), int(pooled.notes("stubborn")[0][1])
        assert queue.cancel("a", running=True) == "stopping"
        ends(queue, "a")
        assert eventually(lambda: queue.stats().acked == 1, WITHIN)
        assert eventually(lambda: gone(pid) and gone(child), WITHIN)
    assert [name for name, _ in pooled.notes("quick")] == ["next"]
    assert queue.stats().delivered == 2  # the next message has run once


def test_later_message_with_this_id_is_never_hit(queue: Queue) -> None:
    """Its first delivery ends before its consumer looks; the second one has another receipt."""
    ran, may_end, cancelled = [], threading.Event(), []

    def handle(message: Message) -> None:
        ran.append(message.receipt)
        if len(ran) == 1:
            may_end.wait(WITHIN)
            return
        time.sleep(2.5)  # its consumer looks twice
        cancelled.append(message.cancelled)

    queue.send("x", id="a")
    with consuming(queue, handle, concurrency=1):
        assert eventually(lambda: len(ran) == 1, WITHIN)
        assert queue.cancel("a", running=True) == "stopping"
        may_end.set()
        assert eventually(lambda: queue.stats().acked == 1, WITHIN)
        queue.send("y", id="a")
        assert eventually(lambda: queue.stats().acked == 2, WITHIN)
    assert cancelled == [False]
    queue.send("x", id="b")
    with consuming(queue, lambda _: time.sleep(1)):
        assert eventually(lambda: queue.stats().unack == 1, WITHIN)
        assert queue.cancel("b", running=True) == "stopping"  # this removes the request that was left over
        assert queue.execute(_requests) == 1
        assert eventually(lambda: queue.stats().acked == 3, WITHIN)


def test_message_that_has_not_started_yet_never_starts(queue: Queue) -> None:
    began, may_end, ran = threading.Event(), threading.Event(), []

    def handle(message: Message) -> None:
        ran.append(message.id)
        began.set()
        may_end.wait(WITHIN)

    queue.send("x", id="a")
    queue.send("x", id="b")
    with consuming(queue, handle, concurrency=1) as consumer:
        assert began.wait(WITHIN)
        consumer.queue.pause()
        for each in queue.receive(max_messages=2):  # if it has fetched only one
            each.release()
        answer = queue.cancel("b", running=True)
        assert answer in {"stopping", "cancelled"}
        may_end.set()
        assert eventually(lambda: queue.stats().acked == 1 and queue.stats().cancelled == 1, WITHIN)
    assert ran == ["a"]


def test_received_message_is_in_flight_and_not_retried(queue: Queue) -> None:
    queue.send("x", id="a")
    (message,) = queue.receive()
    assert queue.cancel("a", running=True) == "in_flight"
    message.nack()
    assert (queue.get("a"), queue.stats().cancelled) == (None, 1)


def test_waiting_message_is_cancelled(queue: Queue) -> None:
    queue.send("x", id="a", delay=60)
    assert queue.cancel("a", running=True) == "cancelled"


def test_message_of_a_consumer_that_was_killed_is_not_retried(redis_server: RedisServer) -> None:
    with Queue("jobs", url=redis_server.url, lease=1) as queue:
        queue.send("x", id="a")
        (claimed,) = queue.execute(_claimed_by_a_consumer)
        assert claimed == "a"
        assert queue.cancel("a", running=True) == "stopping"
        ran: list[str] = []
        with consuming(queue, lambda message: ran.append(message.id)):
            assert eventually(lambda: queue.stats().cancelled == 1, WITHIN)
        assert ran == []


def _claimed_by_a_consumer(context: QueueContext) -> Operation[list[str]]:
    yield from context.opened()
    scripts = context.shards[0]
    _, reply = yield [scripts.pending_to_ready(1), scripts.ready_to_unack(1, 1000, "killed", f"{1:032}")]
    return list(reply.ids)


def test_only_the_message_of_a_batch_learns_of_its_stop(queue: Queue) -> None:
    seen: dict[str, bool] = {}

    @queue.batch_handler(max_messages=2, max_wait=60)
    def handle(messages: list[Message]) -> dict[str, Any]:
        by_id = {each.id: each for each in messages}
        began.set()
        assert eventually(lambda: by_id["a"].cancelled, WITHIN)
        seen.update({name: each.cancelled for name, each in by_id.items()})
        return {"a": InterruptedError()}

    began = threading.Event()
    queue.send("x", id="a")
    queue.send("x", id="b")
    with consuming(queue, None):
        assert began.wait(WITHIN)
        assert queue.cancel("a", running=True) == "stopping"
        assert eventually(lambda: queue.stats().acked == 1, WITHIN)
        ends(queue, "a")
    assert seen == {"a": True, "b": False}


def test_quick_handlers_never_look(queue: Queue, redis_server: RedisServer) -> None:
    """No call of a consumer concerns the requests until a handler has run for a second."""
    keys, watched = queue._context.shards[0].keys, []
    with (
        contextlib.closing(redis.Redis.from_url(redis_server.url)) as client,
        client.monitor() as monitor,
        consuming(queue, lambda _: time.sleep(0.01), concurrency=2),
    ):
        for n in range(100):
            queue.send("x", id=f"m{n}")
        queue.send("last", delay=2)
        assert eventually(lambda: queue.stats().acked == 101, WITHIN)
        client.echo("over")
        for command in monitor.listen():
            watched.append(command["command"])
            if command["command"] == "ECHO over":
                break
    assert any("ZADD" in each for each in watched)
    assert not [each for each in watched if each.startswith("EXISTS") and keys.stops in each]


@pytest.mark.parametrize("shards", [1, 3])
def test_shards_and_several_queues(redis_server: RedisServer, shards: int) -> None:
    began: set[str] = set()

    def handle(message: Message) -> None:
        began.add(message.id)
        assert eventually(lambda: message.cancelled, WITHIN)
        raise InterruptedError

    with (
        Queue("one", url=redis_server.url, shards=shards) as one,
        Queue("two", url=redis_server.url, shards=shards) as two,
    ):
        ids: dict[Queue, list[str]] = {one: ["a", "b", "c"], two: ["d", "e"]}
        for queue, names in ids.items():
            for each in names:
                queue.send("x", id=each)
            queue.handler(handle)
        consumer = Consumer([one, two], concurrency=5, shutdown_timeout=0.1)
        consumer.start()
        try:
            assert eventually(lambda: began == set("abcde"), WITHIN)
            for queue, names in ids.items():
                assert {each: queue.cancel(each, running=True) for each in names} == dict.fromkeys(names, "stopping")
            assert eventually(lambda: (one.stats().cancelled, two.stats().cancelled) == (3, 2), WITHIN)
        finally:
            consumer.stop()
