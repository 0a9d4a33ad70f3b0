from __future__ import annotations

from typing import Any

import pytest

from tests.harness.lua.raw import LEASE, NOW


def given(queue: Any, mode: str = "w", **state: Any) -> None:
    queue.given(
        groups={"team": f"{mode} 1 1 0 {NOW} 0 +5 last"},
        rosters={"team": "a"},
        members={"a": "team"},
        held={"last": NOW},
        **state,
    )


def sweep(queue: Any) -> None:
    """Sweep once through everything."""
    for _ in range(9):
        if not queue.sweep_groups().more:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_member_that_exists_is_left_alone(queue, state):
    given(queue, "w", **{state: {"a": NOW + LEASE}})
    sweep(queue)
    assert queue.state()["held"] == {"last": NOW}


@pytest.mark.parametrize("mode", ["w", "c", "x"])
def test_member_that_is_gone_has_ended(queue, mode):
    given(queue, mode, garbage={"a": NOW})
    sweep(queue)
    state = queue.state()
    assert (state["pending"], "held" in state, "members" in state) == ({"last": NOW + 5}, False, False)
    assert state["groups"]["team"] == f"{mode} 1 0 0 {NOW} {NOW} +5 last"


def test_dead_member_has_ended_if_its_group_does_not_wait_for_it(queue):
    given(queue, "c", dead={"a": NOW})
    sweep(queue)
    assert queue.state()["groups"]["team"] == f"c 1 0 1 {NOW} {NOW} +5 last"


def test_nothing_is_looked_at_for_half_a_minute_after_a_sweep(queue):
    given(queue, pending={"a": NOW})
    sweep(queue)
    queue.redis.delete(queue.keys.pending)
    queue.now = NOW + 29_999
    assert queue.sweep_groups() == (0, 0, 0)
    assert "held" in queue.state()
    queue.now = NOW + 30_000
    sweep(queue)
    assert "held" not in queue.state()


def test_clock_that_was_set_back_does_not_stop_sweeps(queue):
    given(queue, pending={"a": NOW})
    sweep(queue)
    queue.redis.delete(queue.keys.pending)
    queue.now = NOW - 100
    sweep(queue)
    assert "held" not in queue.state()


def hold(left: int = 1) -> str:
    return f"\0w {left} {NOW} +5 team"


def test_lost_record_is_restored_from_what_is_stored_with_the_message_that_waits(queue):
    queue.given(
        rosters={"team": "a\nb"}, members={"last": hold(2), "b": "team"}, held={"last": NOW}, pending={"b": NOW}
    )
    sweep(queue)
    assert queue.state()["groups"]["team"] == f"w 2 1 0 {NOW} 0 +5 last"


def test_message_of_a_lost_group_whose_members_have_ended_is_due(queue):
    queue.given(rosters={"team": "a"}, members={"last": hold(), "a": "team"}, held={"last": NOW}, garbage={"a": NOW})
    sweep(queue)
    assert (queue.state()["members"], queue.state()["pending"]) == ({"last": hold()}, {"last": NOW + 5})


def test_message_that_does_not_wait_restores_no_group(queue):
    queue.given(rosters={"team": "a"}, members={"last": hold(), "a": "team"}, pending={"last": NOW, "a": NOW})
    sweep(queue)
    assert list(queue.state()["groups"]) == [""]


def test_member_of_an_unknown_group_stays_one_while_it_exists(queue):
    queue.given(members={"a": "team", "b": "team"}, pending={"a": NOW}, garbage={"b": NOW})
    sweep(queue)
    assert queue.state()["members"] == {"a": "team"}


def test_each_member_of_thousands_is_found(queue):
    names = [f"m{i}" for i in range(3000)]
    queue.given(
        groups={"team": f"w 3000 3000 0 {NOW} 0 +5 last"}, members=dict.fromkeys(names, "team"), held={"last": NOW}
    )
    calls = 1
    while queue.sweep_groups().more:
        calls += 1
    assert 10 < calls < 40
    assert queue.state()["pending"] == {"last": NOW + 5}


def test_queue_without_groups_is_left_alone(queue):
    assert queue.sweep_groups() == (0, 0, 0)
    assert queue.state() == {}
