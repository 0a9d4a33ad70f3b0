"""The consumers of a queue, its samples, and how long its handlers ran, in both APIs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from delayq import Outgoing, Queue
from delayq.errors import InvalidTime
from delayq.model.units import from_ms
from tests.contract.conftest import Make, Now

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@pytest.fixture
def queue(queue: Queue, now: Now) -> Queue:
    """A queue at a time that starts a span of ten minutes."""
    now.later(-now.ms / 1000 % 600)
    queue.send("far", delay=30 * DAY)
    return queue


def ages(queue: Queue, now: Now, **asked: Any) -> list[float]:
    """How many minutes old the samples are."""
    return [(from_ms(now.ms) - sample.at).total_seconds() / 60 for sample in queue.samples(**asked)]


def test_sample_holds_the_stats_of_its_time(queue: Queue, now: Now):
    queue.send_many([Outgoing(n) for n in range(5)])
    first, second = queue.receive(2)
    first.ack()
    second.reject()
    queue.pause()
    now.later(MINUTE + 7)
    assert queue.sample()
    sample = queue.samples()[-1]  # the receive has taken the first
    assert sample.stats == queue.stats()
    assert sample.stats.at == from_ms(now.ms)
    assert sample.at == from_ms(now.ms - 7000)


def test_each_minute_has_one_sample(queue: Queue, now: Now):
    assert queue.sample()
    queue.send("x")
    now.later(59)
    assert not queue.sample()
    now.later(1)
    assert queue.sample()
    assert [sample.stats.sent for sample in queue.samples()] == [1, 2]


def test_samples_are_a_minute_apart_for_an_hour_and_ten_minutes_apart_for_a_day(queue: Queue, now: Now):
    for _ in range(300):
        queue.sample()
        now.later(5 * MINUTE)
    assert ages(queue, now) == [*range(1440, 60, -10), *range(60, 0, -5)]


def test_samples_older_than_a_day_are_not_returned(queue: Queue, now: Now):
    queue.sample()
    now.later(DAY)
    assert ages(queue, now) == [1440]
    now.later(0.001)
    assert ages(queue, now) == []


def test_samples_can_start_at_a_given_time(queue: Queue, now: Now):
    for _ in range(3):
        queue.sample()
        now.later(MINUTE)
    assert ages(queue, now, since=from_ms(now.ms - 120_000)) == [2, 1]
    assert ages(queue, now, since=from_ms(now.ms)) == []


def test_since_needs_a_time_zone(queue: Queue, subtests: pytest.Subtests):
    since: Any
    for since in [dt.datetime(2024, 1, 1), 60]:  # noqa: DTZ001  # what is refused
        with subtests.test(since=since), pytest.raises(InvalidTime, match="since"):
            queue.samples(since)


def test_unused_queue_has_no_samples_and_gets_none(make: Make, client: Any):
    queue = make(name="nobody")
    assert queue.samples() == []
    assert not queue.sample()
    assert queue.consumers() == []
    assert list(client.keys("*nobody*")) == []


def test_samples_of_another_program_are_ignored(queue: Queue, now: Now, client: Any):
    queue.sample()
    key = queue._context.shards[0].keys.samples_minute
    client.delete(key)
    client.xadd(key, {"s": "what is this?"}, id=f"{int(now.ms)}-0")
    assert [sample.stats.sent for sample in queue.samples()] == [1]  # the one kept for ten minutes


def test_stats_show_the_oldest_due_message(queue: Queue, now: Now):
    assert queue.stats().oldest_due_at is None
    queue.send("later", delay=10)
    first = now.ms
    queue.send("x", id="x")
    now.later(2)
    assert queue.stats().oldest_due_at == from_ms(first)
    (message,) = queue.receive(1)
    assert queue.stats().oldest_due_at is None  # it runs
    message.nack(delay=1)
    assert queue.stats().oldest_due_at is None
    now.later(1.5)
    assert queue.stats().oldest_due_at == from_ms(now.ms - 500)


def test_program_that_calls_receive_counts_as_a_consumer(queue: Queue):
    queue.send_many([Outgoing(n) for n in range(4)])
    for _ in range(3):
        queue.receive(1)
    (consumer,) = queue.consumers()
    assert consumer.is_alive
    assert (consumer.concurrency, consumer.handled, consumer.holds) == (0, 0, ())


def test_unseen_consumer_counts_as_gone_and_is_forgotten_after_an_hour(queue: Queue, now: Now):
    queue.send_many([Outgoing(n) for n in range(4)])
    for _ in range(3):
        queue.receive(1)
    now.later(31)
    assert [consumer.is_alive for consumer in queue.consumers()] == [False]
    now.later(HOUR)
    assert queue.consumers() == []
