from __future__ import annotations

import pytest

from delayq.model.placement import STATES
from tests.harness.lua.raw import NOW, SERVER_TIME


def test_counts_heads_and_counters_are_read(queue):
    for size, state in enumerate(STATES, start=1):
        queue.given(**{state: {f"{state}{i}": NOW + size + i + 0.25 for i in range(size)}})
    queue.given(stats={"sent": 21, "acked": 3, "late:10": 4}, meta={"format": "1", "paused": NOW - 5}, bell=["1"])
    before = queue.state()
    assert queue.stats() == (
        NOW,
        NOW - 5,
        {state: size for size, state in enumerate(STATES, start=1)},
        {state: NOW + size + 0.25 for size, state in enumerate(STATES, start=1)},
        {"sent": 21, "acked": 3, "late:10": 4},
        0,
        0,
        None,
    )
    assert queue.state() == before


def test_due_messages_are_counted_in_pending_and_retry(queue):
    queue.given(pending={"a": NOW - 1, "b": NOW, "c": NOW + 1}, retry={"d": NOW, "e": NOW + 1, "f": NOW + 2})
    counts = queue.stats()
    assert (counts.pending_due, counts.retry_due) == (2, 1)


def test_heads_are_correct_when_some_structures_are_empty(queue):
    queue.given(ready={"a": NOW}, dead={"b": NOW + 1})
    found = queue.stats()
    assert found.heads_ms == {"ready": NOW, "dead": NOW + 1}
    assert found.counts == {state: int(state in {"ready", "dead"}) for state in STATES}


def test_stats_of_an_empty_queue_are_zero_and_leave_no_trace(queue):
    assert queue.stats() == (NOW, None, dict.fromkeys(STATES, 0), {}, {}, 0, 0, None)
    assert queue.state() == {}


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    assert before <= queue.stats().now_ms <= queue.server_ms()


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("now", "expected"), [(NOW, (NOW - 5, NOW + 1)), (NOW + 1, (None, None))])
def test_timed_pause_is_reported_until_it_ends(queue, now, expected):
    queue.given(meta={"paused": NOW - 5, "paused_until": NOW + 1})
    queue.now = now
    counts = queue.stats()
    assert (counts.paused_ms, counts.paused_until_ms) == expected
