"""What happened between two samples."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.model import rates
from delayq.model.units import from_ms
from delayq.types import QueueStats


def counted(seconds: float, **stats: Any) -> QueueStats:
    return QueueStats(queue="q", at=from_ms(seconds * 1000), **stats)


def test_rates_are_per_second_between_two_samples():
    before = counted(10, sent=100, delivered=50, acked=40, nacked=5, died=1, lease_lost=1)
    found = rates.between(before, counted(12, sent=120, delivered=60, acked=48, nacked=7, died=2, lease_lost=4))
    assert found is not None
    assert (found.sent, found.delivered, found.acked, found.failed, found.died) == (10, 5, 4, 3, 1)
    assert (found.since, found.until, found.seconds) == (from_ms(10_000), from_ms(12_000), 2)


@pytest.mark.parametrize("later", [10, 9])
def test_samples_of_the_same_time_give_no_rates(later: float):
    assert rates.between(counted(10, sent=1), counted(later, sent=5)) is None


def test_recreated_queue_has_rates_of_zero():
    found = rates.between(counted(1, sent=500, died=3, lateness={1: 9}), counted(2, sent=5, lateness={1: 2}))
    assert found is not None
    assert (found.sent, found.died, found.lateness, found.lateness_p50) == (0, 0, {}, None)


def test_handler_times_cover_only_the_span():
    before = counted(1, lateness={1: 1000, 4096: 5}, handler_time={2: 7})
    now = counted(2, lateness={1: 1000, 8: 60, 64: 40, 4096: 5}, handler_time={2: 8, 1024: 99})
    found = rates.between(before, now)
    assert found is not None
    assert (found.lateness, found.lateness_p50, found.lateness_p99) == ({8: 60, 64: 40}, 0.008, 0.064)
    assert (found.handler_time, found.handler_time_p50, found.handler_time_p99) == ({2: 1, 1024: 99}, 1.024, 1.024)
