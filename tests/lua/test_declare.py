from __future__ import annotations

import pytest

from tests.harness.lua.raw import RUNG


def test_what_a_client_was_made_with_is_stored_where_nothing_is(queue):
    queue.given(meta={"format": "1", "per_key": "9"})
    assert queue.declare({"rate": 100, "period_ms": 1000, "per_key": 2, "events": "50?"}) == 1
    stored = {"rate": "100", "period_ms": "1000", "events": "50"}
    assert queue.state() == {"meta": {"format": "1", "per_key": "9"} | stored, "bell": RUNG}


@pytest.mark.parametrize("wishes", [{}, {"concurrency": 5}, {"concurrency": None}, {"events": "50?"}, {"events": None}])
def test_what_is_stored_is_left_and_wakes_nobody(queue, wishes):
    meta = {"concurrency": "20", "events": "7"}
    queue.given(meta=meta)
    assert queue.declare(wishes) == 0
    assert queue.state() == {"meta": meta}


def test_what_was_removed_is_not_stored_again_until_it_is_configured(queue):
    queue.given(meta={"concurrency": "20"})
    queue.configure({"concurrency": None})
    assert queue.declare({"concurrency": 5}) == 0
    queue.configure({"concurrency": 6})
    assert queue.declare({"concurrency": 5}) == 0
    assert queue.state() == {"meta": {"concurrency": "6"}, "bell": RUNG}
