"""How much falls due when."""

from __future__ import annotations

import datetime as dt

from delayq import Outgoing, Queue
from delayq.model.units import from_ms
from tests.contract.conftest import Now


def test_messages_are_counted_by_due_time(queue: Queue, now: Now):
    queue.send_many([Outgoing("x", delay=delay) for delay in (0, 59.999, 60, 119, 120, 3599.999, 3600, 86_400)])
    buckets = queue.upcoming(3600, 60)
    assert [bucket.pending for bucket in buckets] == [2, 2, 1, *[0] * 56, 1]
    assert [bucket.starts_at for bucket in buckets] == [from_ms(now.ms + 60_000 * i) for i in range(60)]
    assert [bucket.ends_at for bucket in buckets] == [from_ms(now.ms + 60_000 * i) for i in range(1, 61)]


def test_retries_and_pending_messages_are_counted_separately(queue: Queue):
    queue.send_many([Outgoing("x") for _ in range(20)])
    for message in queue.receive(20):
        message.nack(delay=90)
    queue.send_many([Outgoing("x", delay=90) for _ in range(10)])
    buckets = queue.upcoming(180, 60)
    assert [(bucket.pending, bucket.retry, bucket.count) for bucket in buckets] == [(0, 0, 0), (10, 20, 30), (0, 0, 0)]


def test_overdue_messages_count_in_the_first_bucket(queue: Queue, now: Now):
    queue.send_many([Outgoing("x", delay=delay) for delay in (1, 2, 500)])
    now.later(400)
    assert [bucket.pending for bucket in queue.upcoming(200, 100)] == [2, 1]


def test_ready_running_and_dead_messages_are_not_upcoming(queue: Queue):
    queue.send_many([Outgoing(n) for n in range(3)])
    first, second, _ = queue.receive(3)
    first.reject()
    second.release()
    assert [bucket.count for bucket in queue.upcoming(60, 60)] == [0]


def test_last_bucket_has_full_width(queue: Queue):
    queue.send("x", delay=115)
    assert [bucket.count for bucket in queue.upcoming(100, 60)] == [0, 1]


def test_default_is_an_hour_in_buckets_of_five_minutes(queue: Queue):
    buckets = queue.upcoming()
    assert len(buckets) == 12
    assert buckets == queue.upcoming(dt.timedelta(hours=1), dt.timedelta(minutes=5))


def test_500_buckets_are_allowed(queue: Queue):
    queue.send("x", delay=499.5)
    assert [bucket.count for bucket in queue.upcoming(500, 1)] == [*[0] * 499, 1]
