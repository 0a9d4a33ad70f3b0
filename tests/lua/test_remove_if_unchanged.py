from __future__ import annotations

import pytest

from delayq.model.backup import ExpectedMessage
from tests.harness.lua.raw import NOW, SERVER_TIME, stamped

STAMP = f"{NOW:013}"
STATES = ["pending", "ready", "retry", "dead"]


@pytest.mark.parametrize("source", STATES)
def test_unchanged_message_is_moved_to_garbage_and_forgotten(queue, source):
    known = {"attempts": {"a": "1.0.0.0"}, "errors": {"a": "E"}, "reasons": {"a": "R"}}
    queue.given(messages={"a": stamped("A")}, **known, **{source: {"a": NOW - 9, "b": NOW - 9}})
    assert queue.remove_if_unchanged(source, [ExpectedMessage("a", NOW - 9, STAMP)]) == [1]
    assert queue.state() == {
        source: {"b": NOW - 9},
        "garbage": {"a": NOW},
        "messages": {"a": stamped("A")},
        "stats": {"purged": 1},
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    "seen",
    [
        ExpectedMessage("a", NOW - 8, STAMP),
        ExpectedMessage("a", NOW - 9, f"{NOW + 1:013}"),
        ExpectedMessage("a", NOW - 9, ""),
        ExpectedMessage("b", NOW, STAMP),
    ],
    ids=["moved", "replaced", "payload-gone-then", "unknown"],
)
def test_message_that_has_changed_is_not_removed(queue, seen):
    queue.given(dead={"a": NOW - 9}, reasons={"a": "R"}, messages={"a": stamped("A")})
    before = queue.state()
    assert queue.remove_if_unchanged("dead", [seen]) == [0]
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "garbage"])
def test_message_that_has_moved_is_not_removed(queue, state):
    queue.given(messages={"a": stamped("A")}, **{state: {"a": NOW}})
    before = queue.state()
    assert queue.remove_if_unchanged("dead", [ExpectedMessage("a", NOW, STAMP)]) == [0]
    assert queue.state() == before


def test_dead_letter_without_a_payload_is_discarded(queue):
    queue.given(dead={"a": NOW}, reasons={"a": "payload-missing"})
    assert queue.remove_if_unchanged("dead", [ExpectedMessage("a", NOW, "")]) == [1]
    assert queue.state() == {"garbage": {"a": NOW}, "stats": {"purged": 1}}


def test_fractional_score_is_recognised(queue):
    queue.given(retry={"a": NOW + 0.1}, messages={"a": stamped("A")})
    assert queue.remove_if_unchanged("retry", [ExpectedMessage("a", f"{NOW + 0.1:.17g}", STAMP)]) == [1]


def test_each_message_is_checked(queue):
    queue.given(pending={"a": NOW, "b": NOW + 1, "c": NOW}, messages={each: stamped("{}") for each in "abc"})
    assert queue.remove_if_unchanged("pending", [ExpectedMessage(each, NOW, STAMP) for each in "abc"]) == [1, 0, 1]
    assert queue.state()["stats"] == {"purged": 2}


def test_largest_allowed_call_removes_all_messages(queue):
    ids = [f"m{number}" for number in range(500)]
    queue.given(pending=dict.fromkeys(ids, NOW), messages={each: stamped("{}") for each in ids})
    assert queue.remove_if_unchanged("pending", [ExpectedMessage(each, NOW, STAMP) for each in ids]) == [1] * 500
    assert "pending" not in queue.state()


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(pending={"a": NOW}, messages={"a": stamped("{}")})
    before = queue.server_ms()
    queue.remove_if_unchanged("pending", [ExpectedMessage("a", NOW, STAMP)])
    assert before <= queue.state()["garbage"]["a"] <= queue.server_ms()
