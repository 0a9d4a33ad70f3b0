from __future__ import annotations

import pytest

from tests.harness.lua.raw import LEASE, NOW, RUNG, SERVER_TIME


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
@pytest.mark.parametrize("due", ["+5000", NOW + 5000])
def test_waiting_message_is_pending_with_its_new_due_time(queue, state, due):
    queue.given(
        attempts={"a": "2.1.1.0"}, errors={"a": "ValueError"}, messages={"a": "{}"}, **{state: {"a": NOW + 9000}}
    )
    assert queue.reschedule("a", due) == "rescheduled"
    assert queue.state() == {
        "pending": {"a": NOW + 5000},
        "attempts": {"a": "2.1.1.0"},
        "errors": {"a": "ValueError"},
        "messages": {"a": "{}"},
        "stats": {"rescheduled": 1},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("state", "reply"),
    [
        ({"unack": {"a": NOW + LEASE}}, "in_flight"),
        ({"dead": {"a": NOW}}, "dead"),
        ({"garbage": {"a": NOW}}, "unknown"),
        ({"pending": {"b": NOW}}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_message_that_does_not_wait_is_unchanged(queue, state, reply):
    queue.given(**state)
    before = queue.state()
    assert queue.reschedule("a", "+5000") == reply
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("now", "due", "expected"),
    [(NOW + 0.25, "+10", NOW + 11), (NOW + 0.25, "+0", NOW), (NOW + 0.25, NOW + 10, NOW + 10), (NOW, 0, 0)],
)
def test_due_time_is_never_before_the_requested_one(queue, now, due, expected):
    queue.now = now
    queue.given(ready={"a": NOW - 5})
    queue.reschedule("a", due)
    assert queue.state()["pending"] == {"a": expected}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("state", "bell"),
    [
        ({"pending": {"a": NOW + 20, "b": NOW + 11}}, RUNG),
        ({"pending": {"a": NOW + 20, "b": NOW + 10}}, None),
        ({"pending": {"a": NOW + 20, "b": NOW + 9}}, None),
        ({"pending": {"a": NOW + 20}}, RUNG),
        ({"retry": {"a": NOW + 20}, "pending": {"b": NOW + 9}}, None),
        ({"retry": {"a": NOW + 20}, "pending": {"b": NOW + 11}}, RUNG),
        ({"pending": {"a": NOW + 20}, "bell": RUNG}, RUNG),
    ],
)
def test_bell_rings_once_for_a_new_earliest_message(queue, state, bell):
    queue.given(**state)
    queue.reschedule("a", "+10")
    assert queue.state().get("bell") == bell


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(pending={"a": NOW})
    before = queue.server_ms()
    queue.reschedule("a", "+5000")
    assert before + 5000 <= queue.state()["pending"]["a"] <= queue.server_ms() + 5001
