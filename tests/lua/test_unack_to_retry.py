from __future__ import annotations

import pytest

from delayq.errors import DelayqError
from tests.harness.lua.raw import NOW, RUNG, SERVER_TIME

LOST = "LeaseLost: the consumer did not settle the message before its lease ended"


def test_expired_lease_returns_message_to_retry(queue):
    queue.given(unack={"a": NOW - 3.75}, messages={"a": "{}"})
    assert queue.unack_to_retry() == 1
    assert queue.state() == {
        "retry": {"a": NOW - 4},
        "messages": {"a": "{}"},
        "attempts": {"a": "1.0.0.1"},
        "errors": {"a": LOST},
        "stats": {"lease_lost": 1},
        "bell": RUNG,
    }


@pytest.mark.parametrize(
    ("lease_end", "now", "lost"),
    [
        (NOW - 1, NOW, True),
        (NOW, NOW, True),
        (NOW + 1, NOW, False),
        (NOW, NOW - 0.001, False),
        (NOW + 0.001, NOW, False),
        (NOW + 0.25, NOW + 0.75, False),  # by less than a millisecond: the holder gets the benefit of the doubt
        (NOW + 0.25, NOW + 1, True),
    ],
)
def test_lease_is_lost_at_its_end(queue, lease_end, now, lost):
    queue.given(unack={"a": lease_end})
    queue.now = now
    assert queue.unack_to_retry() == int(lost)
    assert ("retry" in queue.state()) is lost


def test_lost_delivery_counts_as_an_attempt_and_keeps_its_error(queue):
    queue.given(unack={"a": NOW, "b": NOW}, attempts={"a": "2.3.1.1", "b": "9.0.0.0"}, errors={"a": "ValueError"})
    queue.unack_to_retry()
    after = queue.state()
    assert after["attempts"] == {"a": "3.3.1.2", "b": "10.0.0.1"}
    assert after["errors"] == {"a": LOST, "b": LOST}


def test_cancelled_delivery_is_not_retried(queue):
    queue.given(
        unack={"a": NOW - 1, "b": NOW - 1, "c": NOW + 1},
        attempts={"a": "1.0.0.0", "c": "1.0.0.0"},
        errors={"a": "ValueError", "c": "ValueError"},
        cancelled={"a", "c"},
        messages={"a": "A", "b": "B", "c": "C"},
    )
    assert queue.unack_to_retry() == 2
    assert queue.state() == {
        "retry": {"b": NOW - 1},
        "unack": {"c": NOW + 1},
        "garbage": {"a": NOW},
        "attempts": {"b": "1.0.0.1", "c": "1.0.0.0"},
        "errors": {"b": LOST, "c": "ValueError"},
        "cancelled": {"c"},
        "messages": {"a": "A", "b": "B", "c": "C"},
        "stats": {"lease_lost": 2, "cancelled": 1},
        "bell": RUNG,
    }


def test_running_leases_are_unchanged(queue):
    queue.given(unack={"a": NOW + 1}, stats={"lease_lost": 4})
    before = queue.state()
    assert queue.unack_to_retry() == 0
    assert queue.state() == before


def test_earliest_end_goes_first_up_to_the_limit(queue):
    queue.given(unack={"a": NOW - 1, "b": NOW - 3, "c": NOW - 2})
    assert queue.unack_to_retry(2) == 2
    after = queue.state()
    assert after["retry"] == {"b": NOW - 3, "c": NOW - 2}
    assert after["unack"] == {"a": NOW - 1}


def test_call_is_bounded_by_its_limit(queue):
    queue.given(unack={f"m{i}": NOW - i for i in range(1001)})
    assert queue.unack_to_retry(1000) == 1000
    assert queue.state()["unack"] == {"m0": NOW}
    assert queue.unack_to_retry(1000) == 1
    after = queue.state()
    assert after["retry"] == {f"m{i}": NOW - i for i in range(1001)}
    assert after["stats"]["lease_lost"] == 1001


def test_bell_never_rings_twice(queue):
    queue.given(unack={"a": NOW}, bell=RUNG)
    queue.unack_to_retry()
    assert queue.state()["bell"] == RUNG


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    hour = 3_600_000
    queue.given(unack={"a": queue.server_ms(), "b": queue.server_ms() + hour})
    assert queue.unack_to_retry() == 1
    assert list(queue.state()["retry"]) == ["a"]


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("key", ["errors", "garbage", "cancelled", "stats", "retry", "attempts"])
def test_overwritten_key_loses_no_message(queue, key):
    queue.given(unack={f"m{n}": NOW - 1 for n in range(5)})
    queue.redis.set(getattr(queue.keys, key), "x")
    with pytest.raises(DelayqError):
        queue.unack_to_retry()
    assert len(queue.redis.zrange(queue.keys.unack, 0, -1)) == 5


def test_unreadable_delivery_count_restarts_and_affects_no_other_message(queue):
    queue.given(unack={"a": NOW - 1, "b": NOW - 1}, attempts={"a": "broken", "b": "2.0.0.0"})
    assert queue.unack_to_retry() == 2
    state = queue.state()
    assert set(state["retry"]) == {"a", "b"}
    assert state["attempts"] == {"a": "1.0.0.1", "b": "3.0.0.1"}


@pytest.mark.same_on_all_servers
def test_replaced_deliveries_are_forgotten_a_minute_after_their_leases_even_without_a_limit(queue):
    queue.given(replaced={"old": NOW - 60_000, "late": NOW - 59_999, "runs": NOW + 1})
    assert queue.unack_to_retry() == 0
    assert queue.state() == {"replaced": {"late": NOW - 59_999, "runs": NOW + 1}}
