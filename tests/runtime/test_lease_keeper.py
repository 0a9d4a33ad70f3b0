"""Which leases a consumer can trust."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import redis
import structlog

from delayq import Consumer, Message, Queue
from delayq.model import lease_clock
from delayq.protocol.command import Command
from delayq.protocol.script import script
from delayq.runtime.lease_keeper import LeaseKeeper
from delayq.transport.fast_socket import FastSocket, FastSocketPool
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def test_lease_that_ended_while_the_machine_slept_is_not_trusted(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    with Queue("emails", url=redis_server.url) as queue:
        queue.send("x")
        (message,) = queue.receive(lease=30)
        keeper = LeaseKeeper[Message](queue._context)
        assert keeper.stands(message)
        woken = time.clock_gettime(lease_clock._CLOCK) + 31
        monkeypatch.setattr("delayq.model.lease_clock.time.clock_gettime", lambda _: woken)
        assert not keeper.stands(message)


def test_replaced_delivery_keeps_its_place_and_is_logged_once(redis_server: RedisServer):
    with Queue("emails", url=redis_server.url) as queue, redis.Redis.from_url(redis_server.url) as client:
        queue.configure(concurrency=1)
        queue.send("old", id="x")
        (message,) = queue.receive(lease=10)
        queue.send("new", id="x", on_conflict="replace")
        keeper = LeaseKeeper[Message](queue._context)
        keeper.hold([message])
        place = f"{message.receipt}\0x"
        began = client.zscore("delayq:{emails}:replaced", place)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                queue.execute(lambda _: keeper.renew())
        assert client.zscore("delayq:{emails}:replaced", place) > began + 5000  # the keeper's lease is 30 s long
        assert [line["event"] for line in logs] == ["message replaced while running"]
        assert not keeper.stands(message)
        assert queue.ack(message) == [False]
        assert not client.exists("delayq:{emails}:replaced")


def test_delivery_that_is_being_settled_is_renewed_once_little_of_its_lease_is_left(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    with Queue("emails", url=redis_server.url) as queue:
        queue.send("x")
        (message,) = queue.receive(lease=30)
        keeper, asked = LeaseKeeper[Message](queue._context), message.held_until
        keeper.hold([message])
        keeper.settling = frozenset([id(message)])
        began = time.clock_gettime(lease_clock._CLOCK)
        for seconds, is_renewed in ((15, False), (21, True)):
            monkeypatch.setattr("delayq.model.lease_clock.time.clock_gettime", lambda _, s=seconds: began + s)
            queue.execute(lambda _: keeper.renew())
            assert (message.held_until > asked) is is_renewed
        assert queue.ack(message) == [True]


def test_settlement_on_a_silent_connection_loses_no_lease(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    """Its connection takes the ack and says nothing for longer than a lease; it is repeated on another one."""
    original, silent = FastSocketPool.use, threading.Event()

    def use(self: FastSocketPool, socket: FastSocket, calls: Sequence[Command[Any]], whole: bool = False) -> list[Any]:
        if not silent.is_set() and any(call.script is script("ack") for call in calls):
            silent.set()
            time.sleep(2.5)
            raise redis.TimeoutError("silent")
        return original(self, socket, calls, whole)

    with Queue("silent", url=redis_server.url, lease=1, max_retries=0) as queue:
        queue.send("x")
        monkeypatch.setattr(FastSocketPool, "use", use)
        first = Consumer(queue, lambda _: None, concurrency=1)
        first.start()
        assert silent.wait(60)
        with Queue("silent", url=redis_server.url, lease=1) as other:
            second = Consumer(other, lambda _: None)
            second.start()
            assert eventually(lambda: other.stats().acked == 1)
            second.stop()
        first.stop()
        stats = queue.stats()
    assert (stats.delivered, stats.lease_lost, stats.dead) == (1, 0, 0)
