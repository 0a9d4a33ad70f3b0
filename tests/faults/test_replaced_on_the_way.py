"""A message replaced between its claim and the fetch of its envelope, which are two round trips."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from delayq import Message, Queue
from delayq.operations import claim
from tests.harness.servers import RedisServer

NOW = 1_700_000_000_000
LEASE = 30_000


class Clock:
    """The server's time, ms."""

    now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def queue(redis_server: RedisServer):
    with Queue("q", url=redis_server.url, clock=Clock()) as queue:
        queue.send(b"old", id="a")
        yield queue


def claim_and(queue: Queue, replace: Any) -> list[Message]:
    """Claim, and do something before the envelopes are fetched."""
    steps = claim.claim(queue._context, partial(Message, queue), 10, LEASE)
    calls = next(steps)
    try:
        while True:
            if calls[0].script is None:
                replace()
            calls = steps.send(queue._executor.run(calls))
    except StopIteration as stop:
        batch: claim.Batch = stop.value
        return batch.messages


@pytest.mark.parametrize("late_ms", [0, 5])
@pytest.mark.parametrize("passed_ms", [0.5, 1, 1000])
def test_new_message_is_not_handled_before_it_is_due(queue: Queue, passed_ms: float, late_ms: int):
    clock: Any = queue._context.clock
    clock.now = NOW + late_ms

    def replace() -> None:
        clock.now += passed_ms
        queue.send(b"new", delay=3600, id="a", on_conflict="replace")

    assert claim_and(queue, replace) == []
    clock.now += 3_600_001
    assert [message.body for message in queue.receive()] == [b"new"]


def test_message_stored_before_the_clock_was_set_back_is_handled(queue: Queue):
    clock: Any = queue._context.clock
    queue._executor.run([queue._context.shards[0].pending_to_ready()])
    clock.now = NOW - 5000
    (message,) = claim_and(queue, lambda: None)
    message.ack()
    assert queue.stats().acked == 1


def test_message_replaced_while_it_ran_keeps_its_place(queue: Queue):
    queue.receive()
    queue.send(b"new", id="a", on_conflict="replace")
    queue.send(b"other", id="b")
    assert [message.id for message in queue.receive()] == ["a", "b"]
