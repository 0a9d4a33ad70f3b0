"""Which leases a consumer can trust."""

from __future__ import annotations

import time

import pytest
import redis
import structlog

from delayq import Message, Queue
from delayq.model import lease_clock
from delayq.runtime.lease_keeper import LeaseKeeper
from tests.harness.servers import RedisServer


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
