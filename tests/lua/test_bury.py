from __future__ import annotations

import pytest

from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_waiting_message_becomes_a_dead_letter_and_keeps_its_attempts_and_error(queue, state):
    queue.given(
        attempts={"a": "1.0.0.0", "b": "2.0.0.0"},
        errors={"a": "A"},
        messages={"a": "A", "b": "B"},
        stats={"sent": 2},
        **{state: {"a": NOW + 7, "b": NOW + 8}},
    )
    assert queue.bury("a", "unwanted") == "buried"
    assert queue.state() == {
        state: {"b": NOW + 8},
        "dead": {"a": NOW},
        "attempts": {"a": "1.0.0.0", "b": "2.0.0.0"},
        "errors": {"a": "A"},
        "reasons": {"a": "unwanted"},
        "messages": {"a": "A", "b": "B"},
        "stats": {"sent": 2, "died": 1},
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"unack": {"a": NOW + LEASE}}, "in_flight"),
        ({"dead": {"a": NOW - 5}, "reasons": {"a": "A"}}, "dead"),
        ({"garbage": {"a": NOW}, "messages": {"a": "{}"}}, "unknown"),
        ({"pending": {"b": NOW}}, "unknown"),
    ],
)
def test_message_that_does_not_wait_is_unchanged(queue, state, expected):
    queue.given(**state)
    before = queue.state()
    assert queue.bury("a", "unwanted") == expected
    assert queue.state() == before


@pytest.mark.same_on_all_servers
def test_message_left_in_two_structures_is_in_one_afterwards(queue):
    queue.given(pending={"a": NOW + 7}, retry={"a": NOW + 8})
    assert queue.bury("a", "unwanted") == "buried"
    assert queue.state() == {"dead": {"a": NOW}, "reasons": {"a": "unwanted"}, "stats": {"died": 1}}


@pytest.mark.same_on_all_servers
def test_ledger_has_the_reason(queue):
    queue.given(pending={"a": NOW}, meta={"events": 9})
    queue.bury("a", "unwanted")
    ((_, fields),) = queue.state()["events"]
    assert (fields["event"], fields["id"], fields["reason"]) == ("died", "a", "unwanted")


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(pending={"a": NOW})
    before = queue.server_ms()
    queue.bury("a", "unwanted")
    assert before <= queue.state()["dead"]["a"] <= queue.server_ms()
