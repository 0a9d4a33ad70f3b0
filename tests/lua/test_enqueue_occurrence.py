from __future__ import annotations

import pytest

from delayq.errors import ServerOutOfMemory
from tests.harness.lua.raw import NOW, RUNG, RawQueue, stamped

NEXT = NOW + 60_000
RUNNING = {"schedules": {"s": "R"}, "armed": {"s": NOW}, "unack": {"s@1": NOW + 9}, "messages": {"s@1": "{}"}}
WAITING = {"schedules": {"s": "R"}, "armed": {"s": NOW}, "pending": {"s@1": NOW}, "messages": {"s@1": "{}"}}


def follow(queue: RawQueue) -> int:
    """Arm the slot after the one that is handed out."""
    return int(queue.enqueue_occurrence("s", NOW, "", b"", NEXT, "s@2", b"E"))


def test_handing_out_an_occurrence_sends_the_next(queue):
    queue.given(**RUNNING)
    assert follow(queue) == 1
    assert queue.state() == {
        "schedules": {"s": "R"},
        "armed": {"s": NEXT},
        "unack": {"s@1": NOW + 9},
        "pending": {"s@2": NEXT},
        "messages": {"s@1": "{}", "s@2": stamped("E")},
        "stats": {"sent": 1},
        "bell": RUNG,
    }


def test_repeated_call_changes_nothing(queue):
    queue.given(**RUNNING)
    follow(queue)
    before = queue.state()
    assert follow(queue) == 0
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("armed", [NOW - 1, NOW + 1, NEXT, 0])
def test_slot_that_is_no_longer_armed_arms_nothing(queue, armed):
    queue.given(**RUNNING | {"armed": {"s": armed}})
    before = queue.state()
    assert follow(queue) == 0
    assert queue.state() == before


def test_removed_schedule_is_not_armed_again(queue):
    queue.given(unack={"s@1": NOW + 9}, messages={"s@1": "{}"})
    before = queue.state()
    assert follow(queue) == 0
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_slot_whose_id_another_message_has_changes_nothing(queue, state):
    queue.given(schedules={"s": "R"}, armed={"s": NOW}, messages={"s@2": "old"}, **{state: {"s@2": NOW + 7}})
    before = queue.state()
    assert follow(queue) == 2
    assert queue.state() == before


def test_occurrence_in_garbage_is_sent_again(queue):
    queue.given(schedules={"s": "R"}, armed={"s": NOW}, messages={"s@2": "old"}, garbage={"s@2": NOW})
    follow(queue)
    state = queue.state()
    assert (state["pending"], state["messages"]) == ({"s@2": NEXT}, {"s@2": stamped("E")})
    assert "garbage" not in state


def test_new_schedule_is_stored_and_armed(queue):
    assert queue.enqueue_occurrence("s", "", "", b"R", NEXT, "s@2", b"E") == 1
    assert queue.state() == {
        "schedules": {"s": "R"},
        "armed": {"s": NEXT},
        "pending": {"s@2": NEXT},
        "messages": {"s@2": stamped("E")},
        "stats": {"sent": 1},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready"])
def test_changed_schedule_replaces_its_waiting_occurrence(queue, state):
    known = {"attempts": {"s@1": "0.1.0.0"}, "errors": {"s@1": "E"}}
    queue.given(schedules={"s": "R"}, armed={"s": NOW}, messages={"s@1": "{}"}, **known, **{state: {"s@1": NOW}})
    assert queue.enqueue_occurrence("s", NOW, "s@1", b"R2", NEXT, "s@2", b"E") == 1
    assert queue.state() == {
        "schedules": {"s": "R2"},
        "armed": {"s": NEXT},
        "pending": {"s@2": NEXT},
        "garbage": {"s@1": NOW},
        "messages": {"s@1": "{}", "s@2": stamped("E")},
        "stats": {"sent": 1, "cancelled": 1},
        **({"bell": RUNG} if state == "ready" else {}),  # otherwise somebody already watches for an earlier time
    }


def test_changed_schedule_can_keep_its_slot(queue):
    queue.given(**WAITING)
    assert queue.enqueue_occurrence("s", NOW, "s@1", b"R2", NOW, "s@1", b"new") == 1
    state = queue.state()
    assert (state["pending"], state["messages"]) == ({"s@1": NOW}, {"s@1": stamped("new")})
    assert state["stats"] == {"sent": 1, "cancelled": 1}
    assert "garbage" not in state


def test_repeated_change_that_keeps_the_slot_counts_once(queue):
    queue.given(**WAITING)
    queue.enqueue_occurrence("s", NOW, "s@1", b"R2", NOW, "s@1", b"E")
    before = queue.state()
    assert queue.enqueue_occurrence("s", NOW, "s@1", b"R2", NOW, "s@1", b"E") == 1
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready"])
@pytest.mark.parametrize("slot", [{"to": NEXT, "to_id": "s@2", "envelope": b"E"}, {"to": 0}, {"to": ""}], ids=repr)
def test_occurrence_that_was_moved_is_not_withdrawn(queue, state, slot):
    queue.given(schedules={"s": "R"}, armed={"s": NOW}, messages={"s@1": "{}"}, **{state: {"s@1": NOW + 9}})
    assert queue.enqueue_occurrence("s", NOW, "s@1", b"", **slot) == 1
    assert queue.state()[state]["s@1"] == NOW + 9
    assert "cancelled" not in queue.state().get("stats", {})


def test_changed_schedule_cannot_keep_the_slot_of_an_occurrence_that_was_moved(queue):
    queue.given(**WAITING | {"pending": {"s@1": NOW + 9}})
    before = queue.state()
    assert queue.enqueue_occurrence("s", NOW, "s@1", b"R2", NOW, "s@1", b"new") == 2
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["unack", "retry"])
def test_changed_schedule_does_not_touch_a_running_occurrence(queue, state):
    queue.given(schedules={"s": "R"}, armed={"s": NOW}, messages={"s@1": "{}"}, **{state: {"s@1": NOW + 9}})
    queue.enqueue_occurrence("s", NOW, "s@1", b"R2", NEXT, "s@2", b"E")
    assert queue.state()[state] == {"s@1": NOW + 9}
    assert queue.state()["stats"] == {"sent": 1}


def test_pause_cancels_the_waiting_occurrence(queue):
    queue.given(**WAITING)
    assert queue.enqueue_occurrence("s", NOW, "s@1", b"", 0) == 1
    assert queue.state() == {
        "schedules": {"s": "R"},
        "armed": {"s": 0},
        "garbage": {"s@1": NOW},
        "messages": {"s@1": "{}"},
        "stats": {"cancelled": 1},
    }


def test_finished_schedule_is_kept_and_can_be_armed_again(queue):
    queue.given(**RUNNING)
    assert queue.enqueue_occurrence("s", NOW, "", b"", -1) == 1
    assert queue.state() == RUNNING | {"armed": {"s": -1}}
    assert queue.enqueue_occurrence("s", "", "", b"", NEXT, "s@2", b"E") == 0
    assert queue.enqueue_occurrence("s", -1, "", b"", NEXT, "s@2", b"E") == 1
    assert queue.state()["armed"] == {"s": NEXT}


def test_removed_schedule_leaves_only_garbage(queue):
    queue.given(**WAITING)
    assert queue.enqueue_occurrence("s", NOW, "s@1", b"", "") == 1
    assert queue.state() == {"garbage": {"s@1": NOW}, "messages": {"s@1": "{}"}, "stats": {"cancelled": 1}}


def test_later_slot_does_not_ring_the_bell(queue):
    queue.given(**RUNNING, pending={"sooner": NOW + 1})
    follow(queue)
    assert "bell" not in queue.state()


@pytest.mark.parametrize("given", [RUNNING, WAITING])
def test_full_server_is_unchanged(queue, given):
    queue.given(**given)
    before = queue.state()
    queue.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemory):
            queue.enqueue_occurrence("s", NOW, "s@1", b"R2", NEXT, "s@2", b"E")
        assert queue.state() == before
    finally:
        queue.redis.config_set("maxmemory", 0)
