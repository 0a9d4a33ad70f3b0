"""What goes wrong around a consumer, and what must not follow from it. Each test is a bug that once existed."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from delayq import Consumer, DuplicateMessage, Message, Outgoing, Queue, Reject, backoff
from delayq.errors import (
    InvalidInput,
    NotReplicated,
    ServerError,
    ServerUnreachable,
)
from delayq.transport.clients import HURRIES
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

StartServer = Callable[..., RedisServer]


@pytest.fixture
def queue(redis_client: redis.Redis) -> Queue:
    return Queue("jobs", redis=redis_client, backoff=backoff.fixed(0))


async def coroutine(_: Message | None) -> None:
    raise AssertionError("nobody awaits this")


def generator(_: Message) -> Iterator[None]:
    yield


class AsyncCallable:
    async def __call__(self, message: Message) -> None: ...


@pytest.mark.parametrize("handler", [coroutine, generator, AsyncCallable(), functools.partial(coroutine)])
def test_handler_whose_call_runs_nothing_is_refused(queue: Queue, handler: Any) -> None:
    with pytest.raises(InvalidInput, match=r"is async.*delayq\.aio|is a generator function"):
        queue.handler(handler)
    with pytest.raises(InvalidInput, match=r"is async.*delayq\.aio|is a generator function"):
        Consumer(queue, handler)


def test_coroutine_returned_by_a_handler_is_not_a_success(queue: Queue) -> None:
    sent = queue.send("x", max_retries=0)
    loose = coroutine(None)
    assert Consumer(queue, lambda _: loose).drain() == 1
    loose.close()
    info = queue.get(sent.id)
    assert info is not None
    assert (info.state, info.error) == (
        "dead",
        "TypeError: the handler returned an object of type coroutine, which would never run",
    )


class BadReject(Reject):
    def __init__(self, number: int) -> None:
        self.number = number


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [BadReject(3), Unprintable(), Reject(Unprintable())])  # type: ignore[arg-type]
def test_strange_error_does_not_end_a_worker(queue: Queue, error: Exception) -> None:
    def handle(message: Message) -> None:
        if message.payload == "bad":
            raise error

    queue.send_many([Outgoing("bad", max_retries=0), Outgoing("good")])
    assert Consumer(queue, handle, concurrency=1).drain() == 2
    stats = queue.stats()
    assert (stats.dead, stats.acked, stats.unack) == (1, 1, 0)


@pytest.mark.full
def test_missing_replicas_are_reported_on_a_second_try_too(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated send writes nothing new, so the WAIT after it must not confirm the first one."""
    master = start_server(port=True)
    replica = start_server(port=True)
    with replica.client() as client:
        client.replicaof("127.0.0.1", master.port)
        assert eventually(lambda: client.info("replication")["master_link_status"] == "up")
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        for _ in range(2):
            with Queue("safe", url=master.url) as queue, pytest.raises(NotReplicated):
                queue.send("x", id="order-1", wait_replicas=1)
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 25_000)  # for a replica that pauses
    with Queue("safe", url=master.url) as queue:
        assert not queue.send("x", id="order-1", wait_replicas=1).created
        assert queue.stats().sent == 1


def hurry(queue: Queue) -> None:
    """Let the open connections of a queue wait only half a second for an answer from now on."""
    sockets = queue._executor._sockets
    assert sockets is not None
    for each in sockets._idle:
        each._socket.settimeout(0.5)


def test_stalled_server_makes_no_claims_for_nobody(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs the request that its client gave up on, and would run each repetition of it."""
    with Queue("jobs", url=own_server.url) as queue:
        queue.send_many([Outgoing(n) for n in range(60)])
        assert (
            len(queue.receive(1)) == 1
        )  # from now on the client sends no script texts, which the server reads in parts
        run = queue._executor.run

        def stalled(calls: Any, repeat: bool = True) -> Any:
            if not any(call.script and call.script.name == "ready_to_unack" for call in calls):
                return run(calls, repeat)
            hurry(queue)
            os.kill(own_server.pid, signal.SIGSTOP)
            try:
                return run(calls, repeat)
            finally:
                os.kill(own_server.pid, signal.SIGCONT)

        monkeypatch.setattr(queue._executor, "run", stalled)
        with pytest.raises(ServerUnreachable):
            queue.receive(5)
        monkeypatch.undo()
        assert eventually(lambda: queue.stats().unack == 1 + 5)
        assert queue.stats().delivered == 1 + 5


def test_send_interrupted_by_a_stall_is_not_its_own_duplicate(own_server: RedisServer) -> None:
    with Queue("jobs", url=own_server.url) as queue:
        queue.stats()
        hurry(queue)
        os.kill(own_server.pid, signal.SIGSTOP)
        timer = threading.Timer(1.0, os.kill, [own_server.pid, signal.SIGCONT])
        timer.start()
        try:
            queue.send("x", id="order-1", on_conflict="error")
        except DuplicateMessage:
            pytest.fail("the send found its own message, and called it a duplicate")
        except ServerUnreachable:
            pass  # it may or may not have happened, as the error says
        timer.join()


def test_unavailable_shard_does_not_stop_the_others(redis_client: redis.Redis) -> None:
    queue = Queue("wide", redis=redis_client, shards=2)
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(40)])
    redis_client.set("delayq:{wide#1}:meta", "not a hash")
    healthy = redis_client.zcard("delayq:{wide}:pending")
    assert 0 < healthy < 40
    handled: list[int] = []
    consumer = Consumer(queue, lambda message: handled.append(message.payload))
    consumer.start()
    assert eventually(lambda: len(handled) == healthy)
    assert eventually(lambda: redis_client.zcard("delayq:{wide}:unack") == 0)
    redis_client.delete("delayq:{wide#1}:meta")
    assert eventually(lambda: len(handled) == 40)
    consumer.stop()


def test_success_that_could_not_be_settled_does_not_become_a_failure_at_shutdown(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, run = threading.Event(), queue._executor.run

    def broken(calls: Any, repeat: bool = True) -> Any:
        if not tried.is_set() and any(c.script and c.script.name == "ack" for c in calls):
            tried.set()
            assert eventually(HURRIES.get())  # until the consumer is told to stop
            raise ServerUnreachable("the connection broke")
        return run(calls, repeat)

    monkeypatch.setattr(queue._executor, "run", broken)
    queue.send("x", max_retries=0)
    consumer = Consumer(queue, lambda _: None)
    consumer.start()
    assert tried.wait(120)  # the handler has ended, so that a stop without a timeout does not find it running
    consumer.stop(timeout=0)
    stats = queue.stats()
    assert (stats.acked, stats.dead) == (1, 0)


def test_start_without_a_server_gives_an_error() -> None:
    with pytest.raises(ServerError):
        Consumer(Queue("jobs", url="unix:///nowhere/at/all"), lambda _: None).start()


def test_stop_inside_a_handler_does_not_wait_for_that_handler(queue: Queue) -> None:
    queue.send("x")
    consumer = Consumer(queue, lambda _: consumer.stop(), shutdown_timeout=3600)
    assert consumer.run() == 1
    assert queue.stats().acked == 1


def test_shutdown_timeout_of_one_stop_does_not_apply_to_the_next(queue: Queue) -> None:
    started = threading.Event()

    def handle(_: Message) -> None:
        started.set()
        time.sleep(0.5)

    consumer = Consumer(queue, handle, shutdown_timeout=20)
    consumer.start()
    consumer.stop(timeout=0)
    consumer.start()
    queue.send("x")
    assert started.wait(120)
    consumer.stop()
    assert queue.stats().acked == 1


def test_drain_takes_back_what_a_dead_consumer_held(redis_client: redis.Redis) -> None:
    queue = Queue("jobs", redis=redis_client)
    queue.send("x")
    assert len(queue.receive(lease=0.05)) == 1
    time.sleep(0.1)
    assert Consumer(queue, lambda _: None).drain() == 1


def test_recorded_shards_are_looked_up_again_after_the_server_lost_them(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.queue_context.LOOK_SECONDS", 0.0)
    queue = Queue("wide", redis=redis_client, shards=3)
    queue.send("x")
    redis_client.flushall()
    queue.send("x")
    assert redis_client.hget("delayq:{wide}:meta", "shards") == b"3"


def receive_once(queue: Queue, results: Any) -> None:
    results.put([message.payload for message in queue.receive(1, wait=60)])


def test_forked_process_waits_on_its_own_socket(redis_server: RedisServer) -> None:
    with Queue("jobs", url=redis_server.url) as queue:
        assert queue.receive(wait=0.05) == []
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        children = [context.Process(target=receive_once, args=(queue, results)) for _ in range(2)]
        for child in children:
            child.start()
        queue.send_many([Outgoing(n, delay=0.2 + n / 10) for n in range(2)])
        taken = [results.get(timeout=120) for _ in children]
        for child in children:
            child.join(120)
        assert sorted(itertools.chain(*taken)) == [0, 1]


FORKING = """
import multiprocessing, sys, time
from delayq import Consumer, Queue

def handle(message):
    context = multiprocessing.get_context("fork")
    running = context.Event()
    child = context.Process(target=lambda: running.set() or time.sleep(60))
    child.start()
    running.wait()  # Python forgets a signal that comes while it forks
    child.terminate()
    child.join(120)
    print(child.exitcode)

queue = Queue("jobs", url=sys.argv[1])
Consumer(queue, handle, concurrency=1).run(max_messages=1)
"""


@pytest.mark.full
def test_child_forked_by_a_handler_dies_of_its_signal(redis_server: RedisServer) -> None:
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send("x")
    command = [sys.executable, "-W", "ignore", "-c", FORKING, redis_server.url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.strip() == str(-signal.SIGTERM)


UNSTOPPED = """
import sys, threading
from delayq import Consumer, Queue

queue = Queue("jobs", url=sys.argv[1])
started = threading.Event()

def handle(message):
    started.set()
    threading.Event().wait(0.5)

Consumer(queue, handle, concurrency=1).start()
started.wait(120)
"""


def test_program_that_ends_without_stop_finishes_running_messages(redis_server: RedisServer) -> None:
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send_many([Outgoing(n) for n in range(5)])
        command = [sys.executable, "-c", UNSTOPPED, redis_server.url]
        subprocess.run(command, capture_output=True, timeout=120, check=True)
        stats = queue.stats()
        assert stats.unack == 0
        assert stats.acked >= 1
        assert stats.acked + stats.pending + stats.ready == 5


def test_large_payloads_are_fetched_a_few_at_a_time(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send_many([Outgoing(b"x" * 300_000) for _ in range(60)])
    sizes, run = [], queue._executor.run

    def spy(calls: Any, repeat: bool = True) -> Any:
        results = run(calls, repeat)
        fetched = zip(calls, results, strict=True)
        sizes.append(sum(each.size for call, each in fetched if call.args[0] == "MGET"))
        return results

    monkeypatch.setattr(queue._executor, "run", spy)
    assert len(queue.receive(60)) == 60
    assert sum(sizes) > 60 * 300_000
    assert max(sizes) <= 4 * 1024 * 1024
