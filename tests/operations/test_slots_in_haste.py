"""A slot of a key is free soon after its lease has ended, however many other keys have waiting messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue
from tests.harness.servers import RedisServer
from tests.harness.waiting import Stopwatch, eventually

LEASE = 1.0
END: dict[str, Callable[[Queue, Message], object]] = {
    "killed": lambda *_: None,
    "cancelled": lambda queue, message: queue.cancel(message.id),
    "replaced": lambda queue, message: queue.send("x", id=message.id, headers=message.headers, on_conflict="replace"),
}


def tenant(message: Message) -> str:
    return str(message.headers["tenant"])


def hold(queue: Queue, keys: int, end: str) -> None:
    """Take a message of each key; another one waits. The leases end soon after the last message is taken."""
    queue.send_many([Outgoing("x", headers={"tenant": f"t{key:04}"}) for _ in range(2) for key in range(keys)])
    held: list[Message] = []
    while messages := queue.receive(500):
        held += messages
    assert len(held) == keys
    for message in held:
        message.extend(LEASE)
        END[end](queue, message)


@pytest.mark.parametrize("keys", [400, pytest.param(2000, marks=pytest.mark.full)])
@pytest.mark.parametrize("end", END)
def test_slots_of_a_killed_consumer_are_free_within_seconds(redis_server: RedisServer, end: str, keys: int):
    options: dict[str, Any] = {"url": redis_server.url, "concurrency_key": tenant, "concurrency_per_key": 1}
    with Queue("jobs", lease=60, **options) as killed, Queue("jobs", lease=60, **options) as queue:
        hold(killed, keys, end)
        consumer = Consumer(queue, lambda _: None, concurrency=8)
        with Stopwatch() as watch:
            consumer.start()
            assert eventually(lambda: not (killed.stats().pending + killed.stats().ready + killed.stats().unack))
        consumer.stop()
    assert watch.running < LEASE + keys / 80, "checking 20 keys a second takes four times as long"


@pytest.mark.parametrize("end", ["cancelled", "replaced"])
def test_program_that_only_receives_frees_them_as_soon(redis_server: RedisServer, end: str):
    options: dict[str, Any] = {"url": redis_server.url, "concurrency_key": tenant, "concurrency_per_key": 1}
    with Queue("jobs", lease=60, **options) as killed, Queue("jobs", lease=60, **options) as queue:
        hold(killed, 400, end)
        left = 400 if end == "cancelled" else 800
        with Stopwatch() as watch:
            while left:
                messages = queue.receive(100, wait=0.1)
                left -= sum(queue.ack(messages))
        assert watch.running < LEASE + 5


def test_replaced_message_starts_as_soon_as_the_delivery_before_it_ends(redis_client: redis.Redis):
    begun: list[float] = []
    ended: list[float] = []
    go_on = threading.Event()

    def handle(_: Message) -> None:
        begun.append(time.monotonic())
        if len(begun) == 1:
            go_on.wait(60)
            ended.append(time.monotonic())

    with Queue("jobs", redis=redis_client, lease=60, concurrency=1) as queue:
        waits = []
        for number in range(5):
            for each in (begun, ended):
                each.clear()
            go_on.clear()
            consumer = Consumer(queue, handle, concurrency=2)
            consumer.start()
            queue.send("old", id=f"{number}")
            assert eventually(lambda: len(begun) == 1)
            queue.send("new", id=f"{number}", on_conflict="replace")
            time.sleep(0.1)  # until the consumer sleeps again
            go_on.set()
            assert eventually(lambda: len(begun) == 2)
            consumer.stop()
            waits.append(begun[1] - ended[0])
    assert min(waits) < 0.3, "without the bell, a consumer looks only after a second"
