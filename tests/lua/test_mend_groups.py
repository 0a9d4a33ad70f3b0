from __future__ import annotations

from typing import Any

import pytest

from tests.harness.lua.raw import LEASE, NOW

HOUR = 3_600_000


def given(queue: Any, mode: Any = "w", left: Any = 2, members: Any = "b", **state: Any) -> None:
    queue.given(
        groups={"team": f"{mode} 2 {left} 0 {NOW} 0 +5 last"},
        rosters={"team": "a\nb"},
        members=dict.fromkeys(members, "team"),
        held={"last": NOW},
        **state,
    )


def mend(queue: Any) -> None:
    for _ in range(9):
        if not queue.mend_groups().more:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_message_that_has_lost_its_group_is_a_member_again(queue, state):
    given(queue, **{state: {"a": NOW + LEASE, "b": NOW}})
    mend(queue)
    found = queue.state()
    assert found["members"] == {"a": "team", "b": "team"}
    assert (found["groups"]["team"], found["held"]) == (f"w 2 2 0 {NOW} 0 +5 last", {"last": NOW})


def test_member_that_is_gone_has_ended(queue):
    given(queue, members="", garbage={"a": NOW, "b": NOW})
    mend(queue)
    found = queue.state()
    assert (found["pending"], found["bell"], "held" in found) == ({"last": NOW + 5}, ["1"], False)
    assert found["groups"]["team"] == f"w 2 0 0 {NOW} {NOW} +5 last"


def test_dead_letter_is_no_member_of_a_group_that_does_not_wait_for_it(queue):
    given(queue, "c", dead={"a": NOW}, pending={"b": NOW})
    mend(queue)
    assert (queue.state()["members"], queue.state()["groups"]["team"]) == ({"b": "team"}, f"c 2 1 0 {NOW} 0 +5 last")


def test_id_that_is_used_again_is_no_member(queue):
    given(queue, left=1, pending={"a": NOW, "b": NOW})
    before = queue.state()
    mend(queue)
    queue.redis.hdel(queue.keys.groups, "\0")
    assert queue.state() == before


def test_group_without_its_list_of_members_is_left_alone(queue):
    given(queue, pending={"a": NOW})
    queue.redis.delete(queue.keys.rosters)
    mend(queue)
    assert queue.state()["held"] == {"last": NOW}


@pytest.mark.parametrize(
    ("after", "there", "kept"), [(HOUR, {}, True), (HOUR + 1, {}, False), (2 * HOUR, {"last": NOW}, True)]
)
def test_group_is_forgotten_an_hour_after_its_end_and_that_of_its_last_message(queue, after, there, kept):
    queue.given(groups={"team": f"w 1 0 0 {NOW} {NOW} +5 last"}, rosters={"team": "a"}, retry=there)
    queue.now = NOW + after
    mend(queue)
    assert ("team" in queue.state()["groups"], "rosters" in queue.state()) == (kept, kept)


def test_large_groups_of_a_page_are_mended_one_after_the_other(queue):
    names = [f"g{number:02}" for number in range(9)]
    queue.given(
        groups={name: f"w 300 300 0 {NOW} 0 +5 {name}" for name in names},
        rosters={name: "\n".join(f"{name}-{number}" for number in range(300)) for name in names},
        held=dict.fromkeys(names, NOW),
    )
    assert [queue.mend_groups() for _ in range(5)] == [(1, 0, 2)] * 4 + [(0, 0, 1)]
    assert queue.state()["pending"] == dict.fromkeys(names, NOW + 5)


def test_nothing_is_looked_at_for_half_a_minute_after_a_sweep(queue):
    given(queue, members="ab", pending={"a": NOW, "b": NOW})
    mend(queue)
    queue.redis.delete(queue.keys.pending, queue.keys.members)
    queue.now = NOW + 29_999
    assert queue.mend_groups() == (0, 0, 0)
    assert "held" in queue.state()
    queue.now = NOW + 30_000
    mend(queue)
    assert "held" not in queue.state()


def test_queue_without_groups_is_left_alone(queue):
    assert queue.mend_groups() == (0, 0, 0)
    assert queue.state() == {}
