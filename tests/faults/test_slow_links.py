"""Large messages on a slow link: no lease ends unnoticed, nothing dies unhandled, and sends succeed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from delayq import Consumer, Outgoing, Queue
from tests.harness.servers import RedisServer
from tests.harness.throttle import Throttle

MEGABYTE = 1_000_000
BEGIN_MS = 1_700_000_000_000
LONGEST_STEP = 0.05  # seconds


@pytest.fixture
def running_seconds(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds for which this process and the server have run. Leases use them: none ends while one is stopped."""
    seconds, over = [0.0], threading.Event()

    def count() -> None:
        last = time.monotonic()
        while not over.wait(0.005):
            redis_client.ping()
            now = time.monotonic()
            seconds[0] += min(now - last, LONGEST_STEP)
            last = now

    counting = threading.Thread(target=count)
    counting.start()
    monkeypatch.setattr("delayq.model.lease_clock.time", SimpleNamespace(clock_gettime=lambda _: seconds[0]))
    yield seconds
    over.set()
    counting.join()


@pytest.mark.parametrize(
    ("sizes", "lease", "rate"),
    [
        pytest.param([MEGABYTE // 2] * 24, 1.0, 9 * MEGABYTE, id="equal"),
        pytest.param([100, 10_000, MEGABYTE, 100, 3 * MEGABYTE] * 4, 1.0, 9 * MEGABYTE, id="mixed"),
        pytest.param([100, 100, MEGABYTE, 100] * 2, 1.0, 0.6 * MEGABYTE, id="longer-than-a-lease"),
    ],
)
def test_large_message_on_a_slow_link_is_delivered_once(
    redis_server: RedisServer, running_seconds: list[float], sizes: list[int], lease: float, rate: float
):
    options: dict[str, Any] = {"lease": lease, "max_retries": 0, "max_payload": 10 * MEGABYTE}
    options["clock"] = lambda: BEGIN_MS + running_seconds[0] * 1000
    with Queue("big", url=redis_server.url, **options) as direct, Throttle(redis_server.socket, rate) as link:
        direct.send_many([Outgoing(os.urandom(size)) for size in sizes])
        handled: list[int] = []
        with Queue("big", url=link.url, **options) as queue:
            consumer = Consumer(queue, lambda message: handled.append(len(message.body)), concurrency=8)
            assert consumer.drain() == len(sizes)
        stats = direct.stats()
    assert sorted(handled) == sorted(sizes)
    assert (stats.delivered, stats.lease_lost, stats.released, stats.dead) == (len(sizes), 0, 0, 0)


@pytest.mark.full
@pytest.mark.parametrize("sizes", [[150_000] * 8, [1_200_000]], ids=["many", "one"])
def test_send_on_a_slow_uplink_succeeds(redis_server: RedisServer, sizes: list[int]):
    with Throttle(redis_server.socket, MEGABYTE / 8) as link:
        url = f"{link.url}?socket_timeout=5"  # a megabyte takes 8 s
        with Queue("up", url=url, max_payload=10 * MEGABYTE) as queue:
            sents = queue.send_many([Outgoing(os.urandom(size), id=f"m{i}") for i, size in enumerate(sizes)])
            assert [sent.created for sent in sents] == [True] * len(sizes)
            assert queue.stats().sent == len(sizes)
