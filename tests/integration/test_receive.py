"""Pull-style receivers: how they wait, and what they leave to the others."""

from __future__ import annotations

import threading
import time

import pytest
import redis

from delayq import Consumer, Message, Queue
from tests.servers import RedisServer
from tests.waiting import eventually


def test_receiver_that_waits_gets_a_message_sent_meanwhile(any_client: redis.Redis) -> None:
    queue = Queue("pull", redis=any_client)
    timer = threading.Timer(0.2, queue.send, ["x"])
    timer.start()
    (message,) = queue.receive(wait=20)
    timer.join()
    assert message.payload == "x"


def test_receiver_that_waits_gets_a_message_when_it_is_due_and_never_before(any_client: redis.Redis) -> None:
    queue = Queue("pull", redis=any_client)
    for delay in (0.05, 0.2):
        queue.send("x", delay=delay)
        (message,) = queue.receive(wait=20)
        assert message.handed_ms >= message.due_ms
        message.ack()


def test_nothing_in_time_is_an_empty_list(redis_client: redis.Redis) -> None:
    queue = Queue("pull", redis=redis_client)
    queue.send("x", delay=3600)
    before = time.monotonic()
    assert queue.receive(wait=0.2) == []
    assert time.monotonic() - before >= 0.2


def test_receivers_in_many_threads_take_each_message_once(redis_server: RedisServer) -> None:
    with Queue("pull", url=redis_server.url) as queue:
        taken: list[str] = []

        def pull() -> None:
            while messages := queue.receive(max_messages=7, wait=1):
                taken.extend(message.id for message in messages)
                assert all(queue.ack(messages))

        threads = [threading.Thread(target=pull) for _ in range(5)]
        for thread in threads:
            thread.start()
        for n in range(300):
            queue.send(n, delay=n % 10 / 100)
        for thread in threads:
            thread.join()
        assert len(taken) == len(set(taken)) == 300


def test_thread_that_ends_gives_its_blocked_connection_back(redis_server: RedisServer) -> None:
    with Queue("pull", url=redis_server.url) as queue, redis_server.client() as client:
        queue.stats()
        for _ in range(5):
            thread = threading.Thread(target=queue.receive, kwargs={"wait": 0.01})
            thread.start()
            thread.join()
        assert eventually(lambda: len(client.client_list()) <= 3)  # the queue's own, perhaps one bell, and this one


def test_receiver_that_leaves_early_leaves_its_watch_to_others(redis_client: redis.Redis) -> None:
    """It has promised to be awake for the event, gets something else first, and does not come back."""
    queue = Queue("pull", redis=redis_client)
    queue.send("later", delay=0.9)
    timer = threading.Timer(0.2, queue.send, ["now"])
    timer.start()
    (message,) = queue.receive(wait=20)
    assert message.payload == "now"
    timer.join()
    assert redis_client.get("delayq:{pull}:timer") is None
    assert redis_client.llen("delayq:{pull}:bell") == 1


def test_consumer_that_stops_leaves_its_watch_to_others(redis_client: redis.Redis) -> None:
    queue = Queue("push", redis=redis_client)
    handled: list[Message] = []
    consumer = Consumer(queue, handled.append)
    consumer.start()
    queue.send("later", delay=0.9)
    assert eventually(lambda: redis_client.get("delayq:{push}:timer") is not None)
    consumer.stop()
    assert redis_client.get("delayq:{push}:timer") is None


@pytest.mark.parametrize("wait", [-1, float("nan"), "1"])
def test_wait_out_of_range_is_refused(redis_client: redis.Redis, wait: object) -> None:
    with pytest.raises(ValueError, match="wait"):
        Queue("pull", redis=redis_client).receive(wait=wait)  # type: ignore[arg-type]
