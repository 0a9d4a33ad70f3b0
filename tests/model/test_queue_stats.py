from __future__ import annotations

import pytest

from delayq.model.queue_stats import buckets
from delayq.types import QueueStats


def test_inside_counts_waiting_running_and_dead_messages():
    assert QueueStats(queue="q", pending=1, ready=2, unack=4, retry=8, dead=16, garbage=32).inside == 31


@pytest.mark.parametrize(
    ("counts", "missing"),
    [
        ({}, 0),
        ({"sent": 5}, 5),
        ({"sent": 5, "pending": 5, "garbage": 3}, 0),
        ({"sent": 15, "acked": 1, "cancelled": 2, "expired": 3, "purged": 4, "dead": 5}, 0),
        ({"sent": 5, "adjusted": 5}, 0),
        ({"adjusted": -1, "ready": 1}, 0),
        ({"sent": 1, "retry": 2}, -1),
        ({"sent": 2, "delivered": 2, "replaced": 1, "promoted": 2, "nacked": 1, "lease_lost": 1, "released": 1}, 2),
        ({"sent": 1, "pending": 1, "died": 9, "requeued": 9, "rescheduled": 9, "collected": 9}, 0),
    ],
)
def test_missing_counts_sent_messages_that_are_accounted_for_nowhere(counts: dict[str, int], missing: int):
    assert QueueStats(queue="q", **counts).missing == missing  # type: ignore[arg-type]  # fields by name


def test_every_counter_is_a_field():
    assert set(QueueStats.COUNTERS) < set(QueueStats.__struct_fields__)


def test_lateness_buckets_are_named_by_their_upper_bound():
    counters = {"sent": 3, "late:0": 5, "late:1": 2, "late:11": 1}
    assert buckets(counters, "late") == {1: 5, 2: 2, 2048: 1}


@pytest.mark.parametrize(
    ("share", "seconds"), [(0, 0.001), (0.5, 0.001), (0.51, 0.002), (0.9, 0.002), (0.91, 1.024), (1, 1.024)]
)
def test_quantile_of_lateness_is_an_upper_bound(share: float, seconds: float):
    stats = QueueStats(queue="q", lateness={1: 50, 1024: 10, 2: 40})
    assert stats.lateness_quantile(share) == seconds


def test_without_a_delivery_there_is_no_lateness():
    assert QueueStats(queue="q").lateness_quantile(0.99) is None
