"""Receivers that pull: how they wait, and what they leave to others."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue
from delayq.errors import ServerUnreachable
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def test_waiting_receiver_gets_a_message_sent_meanwhile(any_client: redis.Redis) -> None:
    queue = Queue("pull", redis=any_client)
    timer = threading.Timer(0.2, queue.send, ["x"])
    timer.start()
    (message,) = queue.receive(wait=20)
    timer.join()
    assert message.payload == "x"


def test_waiting_receiver_gets_a_message_when_it_is_due_and_never_before(any_client: redis.Redis) -> None:
    queue = Queue("pull", redis=any_client)
    for delay in (0.05, 0.2):
        queue.send("x", delay=delay)
        (message,) = queue.receive(wait=20)
        assert message.handed_ms >= message.due_ms
        message.ack()


def test_forked_child_waits_under_a_name_of_its_own(redis_client: redis.Redis) -> None:
    """Otherwise one of the two could take the other's claim for its own."""
    queue = Queue("pull", redis=redis_client)
    assert queue.receive(wait=0.02) == []
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        queue.receive(wait=0.02)
        os.write(theirs, queue._receiver._wait().name.encode())
        os._exit(0)
    os.close(theirs)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(ours, 1000).decode() not in {"", queue._receiver._wait().name}
    os.close(ours)
    queue.send("x")
    assert [message.payload for message in queue.receive(wait=20)] == ["x"]


def test_receive_returns_an_empty_list_when_nothing_comes_in_time(redis_client: redis.Redis) -> None:
    queue = Queue("pull", redis=redis_client)
    queue.send("x", delay=3600)
    before = time.monotonic()
    assert queue.receive(wait=0.2) == []
    assert time.monotonic() - before >= 0.2


def test_receivers_in_many_threads_get_each_message_once(redis_server: RedisServer) -> None:
    with Queue("pull", url=redis_server.url) as queue:
        taken: list[str] = []
        over = threading.Event()

        def pull() -> None:
            while not over.is_set():
                messages = queue.receive(max_messages=7, wait=0.1)
                taken.extend(message.id for message in messages)
                assert all(queue.ack(messages))

        threads = [threading.Thread(target=pull) for _ in range(5)]
        for thread in threads:
            thread.start()
        for n in range(300):
            queue.send(n, delay=n % 10 / 100)
        arrived = eventually(lambda: len(taken) >= 300)
        over.set()
        for thread in threads:
            thread.join()
        assert arrived
        assert len(taken) == len(set(taken)) == 300


def test_thread_that_ends_gives_its_blocked_connection_back(redis_server: RedisServer) -> None:
    with Queue("pull", url=redis_server.url) as queue, redis_server.client() as client:
        queue.stats()
        before = len(client.client_list())
        for _ in range(5):
            thread = threading.Thread(target=queue.receive, kwargs={"wait": 0.01})
            thread.start()
            thread.join()
        assert eventually(lambda: len(client.client_list()) <= before + 1)  # perhaps one for the bell


def send_to_watcher(queue: Queue, client: redis.Redis) -> None:
    assert eventually(lambda: client.get("delayq:{pull}:timer") is not None)
    queue.send("now")


def test_receiver_that_leaves_early_passes_its_watch_to_others(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to wake for the event, gets something else first, and does not come back."""
    monkeypatch.setattr("delayq.runtime.receive_wait.FALLBACK_MS", 60_000)
    now = [1_000_000.0]
    queue = Queue("pull", redis=redis_client, clock=lambda: now[0])
    queue.send("later", delay=50)
    sender = threading.Thread(target=send_to_watcher, args=(queue, redis_client))
    sender.start()
    (message,) = queue.receive(wait=60)
    assert message.payload == "now"
    sender.join()
    assert redis_client.get("delayq:{pull}:timer") is None
    assert redis_client.llen("delayq:{pull}:bell") == 1


def test_consumer_that_stops_passes_its_watch_to_others(redis_client: redis.Redis) -> None:
    queue = Queue("push", redis=redis_client)
    handled: list[Message] = []
    consumer = Consumer(queue, handled.append)
    consumer.start()
    queue.send("later", delay=3600)
    assert eventually(lambda: redis_client.get("delayq:{push}:timer") is not None)
    consumer.stop()
    assert redis_client.get("delayq:{push}:timer") is None


@pytest.mark.parametrize("wait", [-1, float("nan"), "1"])
def test_wait_out_of_range_is_refused(redis_client: redis.Redis, wait: object) -> None:
    with pytest.raises(ValueError, match="wait"):
        Queue("pull", redis=redis_client).receive(wait=wait)  # type: ignore[arg-type]


def failing(run: Callable[..., Any], times: int) -> Callable[..., Any]:
    """Run calls, except that the connection fails for the first `times` trips that fetch envelopes."""
    left = iter(range(times))

    def run_or_fail(calls: Any, repeat: bool = True) -> Any:
        fetches = any(call.args[0] == "MGET" for call in calls)
        if fetches and next(left, None) is not None:
            raise ServerUnreachable("cut")
        return run(calls, repeat)

    return run_or_fail


@pytest.mark.parametrize("shards", [1, 3])
def test_messages_claimed_when_the_connection_failed_come_with_the_next_call(
    redis_client: redis.Redis, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("pull", redis=redis_client, shards=shards)
    queue.send_many([Outgoing(n) for n in range(60)])
    monkeypatch.setattr(queue._executor, "run", failing(queue._executor.run, times=1))
    with pytest.raises(ServerUnreachable):
        queue.receive(50)
    assert queue.stats().unack > 0
    taken: list[Message] = []
    while messages := queue.receive(7):
        assert len(messages) <= 7
        taken += messages
        assert all(queue.ack(messages))
    assert sorted(message.payload for message in taken) == list(range(60))
    assert {message.attempt for message in taken} == {1}


def test_claimed_message_is_not_fetched_after_its_lease_has_ended(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("pull", redis=redis_client)
    queue.send("x")
    monkeypatch.setattr(queue._executor, "run", failing(queue._executor.run, times=1))
    with pytest.raises(ServerUnreachable):
        queue.receive(lease=0.05)
    time.sleep(0.1)
    (message,) = queue.receive()
    assert message.attempt == 2
    message.ack()


def test_consumer_handles_messages_claimed_when_the_connection_failed(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("pull", redis=redis_client)
    queue.send_many([Outgoing(n) for n in range(20)])
    monkeypatch.setattr(queue._executor, "run", failing(queue._executor.run, times=2))
    handled: list[Message] = []
    assert Consumer(queue, handled.append).drain() == 20
    assert {message.attempt for message in handled} == {1}
    assert queue.stats().acked == 20


def test_receiver_can_wait_again_after_its_idle_bell_connection_broke(own_server: RedisServer) -> None:
    with Queue("pull", url=own_server.url) as queue:
        for payload in ("before", "after"):
            queue.send(payload, delay=0.05)
            (message,) = queue.receive(wait=20)
            assert message.payload == payload
            own_server.restart()


def test_messages_left_to_holders_for_a_grace_are_received_in_the_same_call(redis_server: RedisServer):
    """A program that only receives may call again in a minute."""
    with Queue("pull", url=redis_server.url) as queue, redis.Redis.from_url(redis_server.url) as client:
        queue.send("x")
        queue.receive(lease=0.001)
        time.sleep(0.002)  # until the lease has ended
        now = int(client.time()[0]) * 1000
        client.hset("delayq:{pull}:watch", "looked", f"0 {now - 60_000} {now + 2000}")
        (message,) = queue.receive()
        assert message.attempt == 2
        assert client.time()[0] * 1000 >= now + 1000
