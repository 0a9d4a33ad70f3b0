from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW

INSIDE = {state: {f"{state}-{n}": NOW for n in range(2)} for state in ("pending", "ready", "unack", "retry", "dead")}
GONE = {"acked": 1, "cancelled": 2, "expired": 3, "purged": 4}


def test_balanced_statistics_are_unchanged(queue):
    queue.given(**INSIDE, garbage={"g": NOW}, stats={"sent": 20, "delivered": 7, "collected": 5} | GONE)
    before = queue.state()
    assert queue.reconcile_stats() == 0
    assert queue.state() == before


def test_empty_queue_balances_and_leaves_no_trace(queue):
    assert queue.reconcile_stats() == 0
    assert queue.state() == {}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("sent", "missing"), [(25, 5), (17, -3)])
def test_missing_and_surplus_messages_are_counted_as_adjusted(queue, sent, missing):
    queue.given(**INSIDE, stats={"sent": sent} | GONE)
    before = queue.state()
    assert queue.reconcile_stats() == missing
    before["stats"]["adjusted"] = missing
    assert queue.state() == before


def test_adjustments_add_up(queue):
    queue.given(stats={"sent": 5, "adjusted": 2})
    assert queue.reconcile_stats() == 3
    assert queue.state() == {"stats": {"sent": 5, "adjusted": 5}}
    assert queue.reconcile_stats() == 0


def test_uncounted_messages_make_a_negative_adjustment(queue):
    queue.given(pending={"a": NOW})
    assert queue.reconcile_stats() == -1
    assert queue.state() == {"pending": {"a": NOW}, "stats": {"adjusted": -1}}
