from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW, SERVER_TIME


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "dead"])
def test_messages_are_discarded_with_everything_known_about_them(queue, state):
    queue.given(
        unack={"u": NOW},
        attempts={"a": "1.0.0.0", "u": "1.0.0.0"},
        errors={"a": "A", "u": "U"},
        reasons={"a": "A", "u": "U"},
        messages={"a": "A", "b": "B"},
        **{state: {"a": NOW + 7, "b": NOW + 8}},
    )
    assert queue.purge(state) == 2
    assert queue.state() == {
        "garbage": {"a": NOW, "b": NOW},
        "unack": {"u": NOW},
        "attempts": {"u": "1.0.0.0"},
        "errors": {"u": "U"},
        "reasons": {"u": "U"},
        "messages": {"a": "A", "b": "B"},
        "stats": {"purged": 2},
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("up_to", "limit", "left"),
    [
        ("+inf", 500, []),
        (NOW + 3, 500, []),
        (NOW + 2, 500, ["c"]),
        (NOW + 1, 500, ["b", "c"]),
        (NOW, 500, ["a", "b", "c"]),
        ("+inf", 1, ["b", "c"]),
        (NOW + 1, 2, ["b", "c"]),
    ],
)
def test_lowest_scores_go_first_up_to_the_bound_and_the_limit(queue, up_to, limit, left):
    dead = {"b": NOW + 2, "a": NOW + 1, "c": NOW + 3}
    queue.given(dead=dead)
    assert queue.purge("dead", up_to, limit) == 3 - len(left)
    after = queue.state()
    assert after.get("dead", {}) == {message_id: dead[message_id] for message_id in left}
    assert after.get("garbage", {}) == {message_id: NOW for message_id in dead if message_id not in left}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("max_dead", "shards", "up_to", "limit", "left"),
    [
        ("2", 1, "-inf", 500, ["b", "c"]),
        ("3", 1, "-inf", 500, ["a", "b", "c"]),
        ("9", 1, "-inf", 500, ["a", "b", "c"]),
        ("5", 2, "-inf", 500, ["b", "c"]),
        ("1", 9, "-inf", 500, ["c"]),  # at least one
        ("1", 1, "-inf", 1, ["b", "c"]),
        ("2", 1, NOW + 2, 500, ["c"]),
        ("1", 1, NOW + 1, 500, ["c"]),
        ("1", None, NOW + 1, 500, ["b", "c"]),
        (None, 1, "-inf", 500, ["a", "b", "c"]),
        ("theirs", 1, "-inf", 500, ["a", "b", "c"]),
    ],
)
def test_dead_letters_over_the_limit_or_too_old_are_discarded(queue, max_dead, shards, up_to, limit, left):
    dead = {"b": NOW + 2, "a": NOW + 1, "c": NOW + 3}
    queue.given(dead=dead, meta={"max_dead": max_dead} if max_dead else {})
    assert queue.purge("dead", up_to, limit, shards) == 3 - len(left)
    assert queue.state().get("dead", {}) == {message_id: dead[message_id] for message_id in left}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("age", "left"), [("-0", []), ("-1000", ["b"]), ("-1001", ["a", "b"]), ("-inf", ["a", "b"])])
def test_bound_can_be_an_age(queue, age, left):
    queue.given(dead={"a": NOW - 1000, "b": NOW})
    assert queue.purge("dead", age) == 2 - len(left)
    assert sorted(queue.state().get("dead", {})) == left


def test_nothing_to_discard_changes_nothing(queue):
    queue.given(ready={"a": NOW}, garbage={"g": NOW - 1}, stats={"purged": 1})
    before = queue.state()
    assert queue.purge("pending") == 0
    assert queue.state() == before


def test_call_is_bounded_by_its_limit(queue):
    queue.given(pending={f"m{i}": NOW - i for i in range(1001)})
    assert queue.purge("pending", "+inf", 1000) == 1000
    assert queue.state()["pending"] == {"m0": NOW}
    assert queue.purge("pending", "+inf", 1000) == 1
    after = queue.state()
    assert after == {"garbage": {f"m{i}": NOW for i in range(1001)}, "stats": {"purged": 1001}}


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(pending={"a": NOW})
    before = queue.server_ms()
    queue.purge("pending")
    assert before <= queue.state()["garbage"]["a"] <= queue.server_ms()
