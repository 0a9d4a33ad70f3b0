from __future__ import annotations

import pytest

from delayq.errors import DelayqError
from tests.harness.lua.raw import NOW, RUNG, SERVER_TIME, RawQueue

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
@pytest.mark.parametrize("key", ["errors", "garbage", "cancelled", "stats", "retry", "attempts", "watch"])
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


GAP, GRACE = 3000, 6000


def look(queue: RawQueue, at: float, is_consumer: bool = True, by: int | str = "") -> tuple[int, int, int]:
    """Look at a time; return the number of deliveries taken back, what is left of a grace, and if it holds any back."""
    queue.now = at
    count, now, grace, held_back = queue.unack_to_retry(100, by, is_consumer, list)
    assert now == int(at)
    return count, grace, held_back


def keep_looking(queue: RawQueue, until: int) -> None:
    """Pretend that consumers have looked every second until this time."""
    _, start, end = queue.redis.hget(queue.keys.watch, "looked").split()
    queue.redis.hset(queue.keys.watch, "looked", f"{until} {start} {end}")


def test_lease_that_ended_while_nobody_looked_is_left_to_its_holder_for_a_grace(queue):
    queue.given(unack={"before": NOW + 1, "within": NOW + 500, "soon": NOW + GAP + GRACE, "later": NOW + 99_999})
    assert look(queue, NOW) == (0, 0, 0)
    back = NOW + GAP + 1
    assert look(queue, back) == (0, GRACE, 1)
    keep_looking(queue, back + GRACE - 2)
    assert look(queue, back + GRACE - 1) == (0, 1, 1)
    assert look(queue, back + GRACE) == (3, 0, 0)


def test_lease_that_had_ended_before_is_taken_back_at_once(queue):
    queue.given(unack={"a": NOW - 500, "b": NOW + 500}, watch={"looked": f"{NOW} 0 0"})
    assert look(queue, NOW + 20_000) == (1, GRACE, 1)
    assert list(queue.state()["unack"]) == ["b"]


def test_no_grace_begins_while_a_consumer_looks(queue):
    queue.given(unack={"a": NOW + GAP + 10})
    assert look(queue, NOW) == (0, 0, 0)
    assert look(queue, NOW + GAP) == (0, 0, 0)
    assert look(queue, NOW + GAP + 10) == (1, 0, 0)


def test_killed_consumer_of_an_idle_fleet_is_recovered_without_a_grace(queue):
    """The others only call poll_idle, once a second, and the killed one kept the timer."""
    queue.given(unack={"a": NOW + 30_000})
    queue.poll_idle("killed", 1000)
    for second in range(1, 30):
        for name in ("first", "second"):
            queue.now = NOW + second * 1000
            assert queue.poll_idle(name, 1000).micros > 0
    queue.now = NOW + 30_000
    assert queue.poll_idle("first", 1000).micros == 0 or queue.poll_idle("second", 1000).micros == 0
    assert look(queue, NOW + 30_000) == (1, 0, 0)


def test_program_that_only_receives_knows_no_grace(queue):
    queue.given(unack={"a": NOW + 500, "b": NOW + 60_500})
    assert look(queue, NOW, is_consumer=False) == (0, 0, 0)
    assert "watch" not in queue.state()
    assert look(queue, NOW + 60_000, is_consumer=False, by=NOW) == (1, 0, 0)
    assert look(queue, NOW + 120_000, is_consumer=False) == (1, 0, 0)


def test_program_that_only_receives_waits_once_for_consumers_that_are_gone(queue):
    queue.given(unack={"a": NOW + 500, "b": NOW + 90_000}, watch={"looked": f"{NOW} 0 0"})
    assert look(queue, NOW + 60_000, is_consumer=False) == (0, GRACE, 1)
    assert look(queue, NOW + 60_000 + GRACE, is_consumer=False) == (1, 0, 0)
    assert look(queue, NOW + 120_000, is_consumer=False) == (1, 0, 0)


def test_consumer_that_dies_is_gone_before_its_leases_end_for_a_program_that_receives_often(queue):
    queue.given(unack={"a": NOW + 30_000}, watch={"looked": f"{NOW} 0 0"})
    for second in range(1, 30):
        assert look(queue, NOW + second * 1000, is_consumer=False)[0] == 0
    assert look(queue, NOW + 30_000, is_consumer=False) == (1, 0, 0)


def test_grace_begins_if_the_clock_was_set_back(queue):
    queue.given(unack={"ended": NOW - 1000, "a": NOW + 100}, watch={"looked": f"{NOW + 50_000} 0 0"})
    assert look(queue, NOW) == (1, GRACE, 0)
    assert look(queue, NOW + 1000) == (0, GRACE - 1000, 1)
    keep_looking(queue, NOW + GRACE - 1)
    assert look(queue, NOW + GRACE) == (1, 0, 0)


def test_clock_that_is_set_back_a_little_during_a_grace_does_not_end_it(queue):
    queue.given(unack={"a": NOW + 500}, watch={"looked": f"{NOW} 0 0"})
    assert look(queue, NOW + 5000) == (0, GRACE, 1)
    assert look(queue, NOW + 4990) == (0, GRACE, 1)
    keep_looking(queue, NOW + 4990 + GRACE - 1)
    assert look(queue, NOW + 4990 + GRACE) == (1, 0, 0)


def test_grace_from_before_the_clock_was_set_back_is_over(queue):
    queue.given(unack={"a": NOW - 1}, watch={"looked": f"0 {NOW + 40_000} {NOW + 50_000}"})
    assert look(queue, NOW) == (1, 0, 0)


@pytest.mark.parametrize("by", [0, NOW + 999])
def test_grace_begins_if_the_call_is_executed_too_late(queue, by):
    queue.given(unack={"a": NOW + 500}, watch={"looked": f"{NOW} 0 0"})
    assert look(queue, NOW + 1000, by=NOW + 1000) == (1, 0, 0)
    queue.given(unack={"a": NOW + 1500})
    assert look(queue, NOW + 2000, by=by) == (0, GRACE, 1)


def test_late_calls_do_not_prolong_a_grace(queue):
    queue.given(unack={"a": NOW + 500}, watch={"looked": f"{NOW} 0 0"})
    for after in range(1000, 1000 + GRACE, 500):
        assert look(queue, NOW + after, by=0)[0] == 0
    assert look(queue, NOW + 1000 + GRACE, by=0)[0] == 1


def test_another_gap_begins_the_grace_again_for_the_leases_of_the_first(queue):
    queue.given(unack={"a": NOW + 500}, watch={"looked": f"{NOW} 0 0"})
    assert look(queue, NOW + 4000) == (0, GRACE, 1)
    assert look(queue, NOW + 20_000) == (0, GRACE, 1)
    keep_looking(queue, NOW + 20_000 + GRACE - 1)
    assert look(queue, NOW + 20_000 + GRACE) == (1, 0, 0)
