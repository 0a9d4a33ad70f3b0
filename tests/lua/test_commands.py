"""The calls that are plain commands."""

from __future__ import annotations

from tests.harness.lua.raw import NOW, RUNG


def test_envelopes_are_in_the_order_of_the_ids(queue):
    queue.given(messages={"a": "A", "c": "C"})
    assert queue.envelopes(["c", "b", "a"]) == [b"C", None, b"A"]


def test_page_lists_ids_lowest_score_first(queue):
    queue.given(dead={"c": NOW + 3, "a": NOW + 1, "b": NOW + 2})
    assert queue.page("dead", 2) == ["a", "b"]
    assert queue.page("dead", 9, up_to=NOW + 2) == ["a", "b"]
    assert queue.page("dead", 9, after_ms=NOW + 2) == ["b", "c"]
    assert queue.page("dead", 9, after_ms=f"({NOW + 2}") == ["c"]
    assert queue.page("ready", 9) == []


def test_ranked_page_starts_after_what_it_skips(queue):
    queue.given(dead={"c": NOW + 3, "a": NOW + 1, "b": NOW + 1})
    assert queue.ranked_page("dead", 2, skip=1) == [("b", str(NOW + 1).encode()), ("c", str(NOW + 3).encode())]
    assert queue.ranked_page("dead", 2, skip=3) == []


def test_token_is_passed_on(queue):
    queue.ring()
    assert queue.state() == {"bell": RUNG}
