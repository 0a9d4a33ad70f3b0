from __future__ import annotations

import pytest

from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "dead"])
def test_waiting_message_is_removed_with_everything_known_about_it(queue, state):
    queue.given(
        attempts={"a": "1.0.0.0", "b": "2.0.0.0"},
        errors={"a": "A", "b": "B"},
        reasons={"a": "A", "b": "B"},
        messages={"a": "A", "b": "B"},
        stats={"sent": 2},
        **{state: {"a": NOW + 7, "b": NOW + 8}},
    )
    assert queue.cancel("a") == "cancelled"
    assert queue.state() == {
        state: {"b": NOW + 8},
        "garbage": {"a": NOW},
        "attempts": {"b": "2.0.0.0"},
        "errors": {"b": "B"},
        "reasons": {"b": "B"},
        "messages": {"a": "A", "b": "B"},
        "stats": {"sent": 2, "cancelled": 1},
    }


def test_running_message_is_marked_and_keeps_running(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "1.0.0.0"}, messages={"a": "{}"})
    assert queue.cancel("a") == "in_flight"
    assert queue.state() == {
        "unack": {"a": NOW + LEASE},
        "attempts": {"a": "1.0.0.0"},
        "cancelled": {"a"},
        "messages": {"a": "{}"},
    }


def test_running_message_can_be_cancelled_again(queue):
    queue.given(unack={"a": NOW + LEASE}, cancelled={"a"})
    before = queue.state()
    assert queue.cancel("a") == "in_flight"
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", [{}, {"garbage": {"a": NOW}, "messages": {"a": "{}"}}, {"pending": {"b": NOW}}])
def test_unknown_message_changes_nothing(queue, state):
    queue.given(**state)
    before = queue.state()
    assert queue.cancel("a") == "unknown"
    assert queue.state() == before


@pytest.mark.parametrize("state", ["pending", "unack"])
def test_only_a_member_of_the_given_group_is_cancelled(queue, state):
    queue.given(members={"a": "team", "b": "others"}, **{state: {"a": NOW, "b": NOW, "c": NOW}})
    before = queue.state()
    assert [queue.cancel("b", "team"), queue.cancel("c", "team")] == ["unknown", "unknown"]
    assert queue.state() == before
    assert queue.cancel("a", "team") in ("cancelled", "in_flight")


def test_message_cancelled_twice_counts_once(queue):
    queue.given(pending={"a": NOW}, messages={"a": "{}"})
    assert [queue.cancel("a"), queue.cancel("a")] == ["cancelled", "unknown"]
    assert queue.state()["stats"] == {"cancelled": 1}


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(pending={"a": NOW})
    before = queue.server_ms()
    queue.cancel("a")
    assert before <= queue.state()["garbage"]["a"] <= queue.server_ms()
