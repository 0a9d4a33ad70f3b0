from __future__ import annotations

from tests.harness.lua.raw import NOW

RECORD = f"w 3 2 0 {NOW} 0 - "


def test_group_comes_with_those_that_are_left_and_dead(queue):
    queue.given(groups={"team": RECORD}, rosters={"team": "a\nb\nc"}, members={"b": "team", "c": "team", "d": "other"})
    queue.given(dead={"b": NOW, "a": NOW}, members={"a": "other"})
    assert queue.group("team") == (RECORD, ["a", "b", "c"], ["b", "c"], 1)


def test_unknown_group_is_none(queue):
    queue.given(groups={"broken": "?"})
    assert queue.group("team") is None
    assert queue.group("broken") is None


def test_group_without_members_is_found(queue):
    queue.given(groups={"team": f"w 0 0 0 {NOW} {NOW} - "}, rosters={"team": ""})
    assert queue.group("team") == (f"w 0 0 0 {NOW} {NOW} - ", [], [], 0)
