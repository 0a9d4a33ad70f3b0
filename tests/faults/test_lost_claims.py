"""A claim whose reply is lost is repeated, and costs no lease and no attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue
from delayq.model import outage
from delayq.protocol.command import Command
from delayq.protocol.script import script
from delayq.runtime import prefetch
from delayq.transport.fast_socket import FastSocket, FastSocketPool
from tests.harness.servers import RedisServer


@pytest.mark.parametrize("count", [300, pytest.param(2_000, marks=pytest.mark.full)])
def test_lost_claim_uses_up_no_attempt(count: int, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    original, lost = FastSocketPool.use, 0

    def use(self: FastSocketPool, socket: FastSocket, calls: Sequence[Command[Any]], whole: bool = False) -> list[Any]:
        nonlocal lost
        results = original(self, socket, calls, whole)
        if any(call.script is script("ready_to_unack") for call in calls):
            lost += 1
            raise redis.ConnectionError("the reply is lost")
        return results

    attempts: list[int] = []

    def handle(message: Message) -> None:
        attempts.append(message.attempt)

    with Queue("lost", url=redis_server.url, max_retries=0) as queue:
        queue.send_many([Outgoing(number) for number in range(count)])
        monkeypatch.setattr(FastSocketPool, "use", use)
        monkeypatch.setattr(prefetch, "AHEAD_SECONDS", 0.0)  # one claim per message
        monkeypatch.setattr(outage, "FIRST_PAUSE", 0.001)
        assert Consumer(queue, handle, concurrency=1).drain() == count
        stats = queue.stats()
    assert lost >= count
    assert attempts == [1] * count
    assert (stats.delivered, stats.acked, stats.lease_lost, stats.dead) == (count, count, 0, 0)
