"""A client's clock decides nothing."""

from __future__ import annotations

import time

import pytest
import redis

from delayq import Outgoing, Queue


@pytest.mark.parametrize("step", [-7200, 7200])
def test_client_with_a_wrong_clock_gets_only_due_messages(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    queue, clock = Queue("jobs", redis=redis_client, lease=3600), time.time
    queue.send("runs")
    running = queue.receive()
    queue.send_many([Outgoing("due"), Outgoing("later", delay=3600)])
    monkeypatch.setattr(time, "time", lambda: clock() + step)
    messages = queue.receive()
    assert [message.payload for message in messages] == ["due"]
    assert queue.ack([*running, *messages]) == [True, True]
    before = clock()
    sent = queue.send("sent with a wrong clock")
    assert before - 0.001 <= sent.due_at.timestamp() <= clock() + 0.001
    assert [message.id for message in queue.receive()] == [sent.id]
