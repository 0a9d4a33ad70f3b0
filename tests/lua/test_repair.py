from __future__ import annotations

import itertools
from typing import Any

import pytest

from delayq.model.placement import STATES
from delayq.model.units import MAX_TIME_MS
from delayq.operations.doctor.finding import PRECEDENCE
from tests.harness.lua.raw import LEASE, NOW, RawQueue

WAITING = ("pending", "ready", "retry", "held")
ORDERLY: dict[str, dict[str, Any]] = {
    **{state: {state: {"a": NOW - 5}, "attempts": {"a": "2.1.0.1"}, "errors": {"a": "E"}} for state in WAITING},
    "unack": {
        "unack": {"a": NOW + LEASE + 0.25},
        "attempts": {"a": "2.1.0.1"},
        "errors": {"a": "E"},
        "cancelled": {"a"},
    },
    "dead": {"dead": {"a": NOW}, "attempts": {"a": "2.1.0.1"}, "errors": {"a": "E"}, "reasons": {"a": "rejected"}},
    "garbage": {"garbage": {"a": NOW}},
}


def repair(queue: RawQueue, message_id: str = "a") -> Any:
    return queue.repair(message_id, MAX_TIME_MS, LEASE)


@pytest.mark.parametrize("state", STATES)
def test_healthy_message_is_unchanged(queue, state):
    queue.given(messages={"a": "{}"}, **ORDERLY[state])
    before = queue.state()
    assert repair(queue) == []
    assert queue.state() == before


def test_unknown_message_leaves_no_trace(queue):
    assert repair(queue) == []
    assert queue.state() == {}


@pytest.mark.same_on_all_servers
def test_message_in_two_structures_is_kept_in_the_one_with_precedence(queue, subtests):
    for kept, struck in list(itertools.combinations(PRECEDENCE, 2)):
        queue.clear()
        with subtests.test(kept=kept, struck=struck):
            queue.given(messages={"a": "{}", "b": "{}"}, **{kept: {"a": NOW + 1}, struck: {"a": NOW + 2, "b": NOW}})
            assert repair(queue) == [f"removed from {struck}, kept in {kept}"]
            assert queue.state() == {kept: {"a": NOW + 1}, struck: {"b": NOW}, "messages": {"a": "{}", "b": "{}"}}


def test_message_in_all_structures_is_kept_in_unack(queue):
    queue.given(messages={"a": "{}"}, **{state: {"a": NOW} for state in STATES})
    assert len(repair(queue)) == len(STATES) - 1
    assert queue.state() == {"unack": {"a": NOW}, "messages": {"a": "{}"}}


@pytest.mark.parametrize("state", WAITING)
def test_waiting_message_without_payload_is_moved_to_the_dead_letters(queue, state):
    queue.given(**{state: {"a": NOW - 5, "b": NOW}}, attempts={"a": "1.0.0.0"}, errors={"a": "E"})
    assert repair(queue) == ["moved to the dead letters: payload-missing"]
    assert queue.state() == {
        state: {"b": NOW},
        "dead": {"a": NOW},
        "attempts": {"a": "1.0.0.0"},
        "errors": {"a": "E"},
        "reasons": {"a": "payload-missing"},
        "stats": {"died": 1},
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["unack", "garbage"])
def test_running_message_and_garbage_need_no_payload(queue, state):
    queue.given(**{state: {"a": NOW}})
    assert repair(queue) == []
    assert queue.state() == {state: {"a": NOW}}


def test_dead_letter_without_payload_gets_that_as_its_reason(queue):
    queue.given(dead={"a": NOW - 5}, reasons={"a": "rejected"}, errors={"a": "E"})
    assert repair(queue) == ["moved to the dead letters: payload-missing"]
    assert queue.state() == {"dead": {"a": NOW - 5}, "reasons": {"a": "payload-missing"}, "errors": {"a": "E"}}
    assert repair(queue) == []


def test_payload_without_a_message_is_moved_to_the_dead_letters(queue):
    queue.given(messages={"a": "{}", "b": "{}"}, attempts={"a": "1.0.0.0"}, cancelled={"a"}, reasons={"a": "old"})
    assert repair(queue) == ["moved to the dead letters: orphan", "cancellation removed"]
    assert queue.state() == {
        "dead": {"a": NOW},
        "messages": {"a": "{}", "b": "{}"},
        "attempts": {"a": "1.0.0.0"},
        "reasons": {"a": "orphan"},
        "stats": {"died": 1},
    }


LEFT = {"attempts": {"a": "1.0.0.0"}, "errors": {"a": "E"}, "reasons": {"a": "R"}, "cancelled": {"a"}}
FORGOTTEN = {
    "attempts": "attempts removed",
    "errors": "last error removed",
    "reasons": "reason removed",
    "cancelled": "cancellation removed",
}


@pytest.mark.same_on_all_servers
def test_details_without_a_message_are_removed(queue, subtests):
    for name, known in LEFT.items():
        queue.clear()
        with subtests.test(name=name):
            queue.given(**{name: known})
            assert repair(queue) == [FORGOTTEN[name]]
            assert queue.state() == {}


@pytest.mark.same_on_all_servers
def test_details_that_do_not_fit_the_state_are_removed(queue, subtests):
    for state, name in [
        *(("garbage", name) for name in LEFT),
        *((state, "cancelled") for state in STATES if state not in ("unack", "garbage")),
        *((state, "reasons") for state in STATES if state not in ("dead", "garbage")),
    ]:
        queue.clear()
        with subtests.test(state=state, name=name):
            queue.given(messages={"a": "{}"}, **{state: {"a": NOW}, name: LEFT[name]})
            assert repair(queue) == [FORGOTTEN[name]]
            assert queue.state() == {"messages": {"a": "{}"}, state: {"a": NOW}}


@pytest.mark.same_on_all_servers
def test_unreadable_attempts_are_removed(queue, subtests):
    for stored in ["", "1.0.0", "1.0.0.0.0", "1.0.0.x", "-1.0.0.0"]:
        queue.clear()
        with subtests.test(stored=stored):
            queue.given(messages={"a": "{}"}, retry={"a": NOW}, attempts={"a": stored}, errors={"a": "E"})
            assert repair(queue) == ["attempts removed"]
            assert queue.state() == {"messages": {"a": "{}"}, "retry": {"a": NOW}, "errors": {"a": "E"}}


@pytest.mark.same_on_all_servers
def test_score_that_is_not_a_time_becomes_the_nearest_valid_time(queue, subtests):
    for state, score, repaired in [
        *((state, "-inf", 0) for state in STATES if state != "unack"),
        *((state, "inf", MAX_TIME_MS) for state in STATES if state != "unack"),
        ("pending", -1, 0),
        ("pending", MAX_TIME_MS + 1, MAX_TIME_MS),
        ("unack", -1, NOW),
        ("unack", NOW + LEASE + 1, NOW),
        ("unack", "inf", NOW),
    ]:
        queue.clear()
        with subtests.test(state=state, score=score, repaired=repaired):
            queue.given(messages={"a": "{}"}, **{state: {"a": score}})
            assert repair(queue) == [f"score set to {repaired}"]
            assert queue.state() == {"messages": {"a": "{}"}, state: {"a": repaired}}


@pytest.mark.same_on_all_servers
def test_score_at_a_bound_is_unchanged(queue, subtests):
    for state, score in [("pending", 0), ("pending", MAX_TIME_MS), ("unack", 0), ("unack", NOW + LEASE)]:
        queue.clear()
        with subtests.test(state=state, score=score):
            queue.given(messages={"a": "{}"}, **{state: {"a": score}})
            assert repair(queue) == []
            assert queue.state() == {"messages": {"a": "{}"}, state: {"a": score}}


def test_everything_wrong_is_repaired_in_one_call(queue):
    queue.given(retry={"a": -1}, dead={"a": NOW}, attempts={"a": "?"}, reasons={"a": "R"}, cancelled={"a"})
    assert repair(queue) == [
        "removed from dead, kept in retry",
        "moved to the dead letters: payload-missing",
        "cancellation removed",
        "attempts removed",
    ]
    assert queue.state() == {"dead": {"a": NOW}, "reasons": {"a": "payload-missing"}, "stats": {"died": 1}}
    assert repair(queue) == []
