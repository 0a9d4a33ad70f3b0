"""Which leases a consumer may trust."""

from __future__ import annotations

import time

import pytest

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
