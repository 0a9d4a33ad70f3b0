from __future__ import annotations

import pytest

from tests.harness.lua.raw import LEASE, NOW, RUNG, SERVER_TIME, stamped


def test_new_id_is_sent(queue):
    assert queue.replace("a", "+5000", b"{}") == [NOW + 5000, 1]
    assert queue.state() == {
        "pending": {"a": NOW + 5000},
        "messages": {"a": stamped("{}")},
        "stats": {"sent": 1},
        "bell": RUNG,
    }


@pytest.mark.parametrize(
    ("state", "attempts", "attempts_reset"),
    [
        ("pending", None, None),
        ("pending", "3.1.2.1", "3.1.3.0"),
        ("ready", None, None),
        ("ready", "3.1.2.1", "3.1.3.0"),
        ("unack", None, "1.0.1.0"),
        ("unack", "3.1.2.1", "4.1.4.0"),
        ("retry", "3.1.2.1", "3.1.3.0"),
        ("dead", "3.1.2.1", "3.1.3.0"),
    ],
)
def test_message_in_any_state_is_pending_again_with_all_its_retries(queue, state, attempts, attempts_reset):
    queue.given(messages={"a": "old"}, stats={"sent": 1}, **{state: {"a": NOW + 7.25}})
    if attempts:
        queue.given(attempts={"a": attempts}, errors={"a": "ValueError"}, reasons={"a": "rejected"}, cancelled={"a"})
    assert queue.replace("a", "+5", b"new") == [NOW + 5, 0]
    expected = {
        "pending": {"a": NOW + 5},
        "messages": {"a": stamped("new", NOW + (state == "unack"))},  # later than any delivery of the old one
        "stats": {"sent": 1, "replaced": 1},
        "bell": RUNG,
    }
    if attempts_reset:
        expected["attempts"] = {"a": attempts_reset}
    assert queue.state() == expected


def test_id_in_garbage_is_sent_as_new(queue):
    queue.given(garbage={"a": NOW - 1}, messages={"a": "old"}, stats={"sent": 1, "cancelled": 1})
    assert queue.replace("a", "+5", b"new") == [NOW + 5, 1]
    assert queue.state() == {
        "pending": {"a": NOW + 5},
        "messages": {"a": stamped("new")},
        "stats": {"sent": 2, "cancelled": 1},
        "bell": RUNG,
    }


def test_dead_letter_without_a_payload_is_pending_again(queue):
    queue.given(dead={"a": NOW - 1}, reasons={"a": "payload-missing"}, attempts={"a": "0.1.0.0"})
    assert queue.replace("a", "+5", b"new") == [NOW + 5, 0]
    assert queue.state() == {
        "pending": {"a": NOW + 5},
        "messages": {"a": stamped("new")},
        "attempts": {"a": "0.1.0.0"},
        "stats": {"replaced": 1},
        "bell": RUNG,
    }


def test_running_delivery_loses_its_lease_and_attempt_numbers_keep_rising(queue):
    queue.send([("a", "+0", b"old")])
    receipt = queue.deliver("a")
    queue.replace("a", "+0", b"new")
    assert queue.ack([("a", receipt)]) == [0]
    queue.pending_to_ready()
    assert queue.ready_to_unack(1, LEASE).deliveries == ["1.0.1.0"]


def test_other_messages_are_unchanged(queue):
    others = {
        "pending": {"p": NOW + 50},
        "ready": {"r": NOW},
        "unack": {"u": NOW + LEASE},
        "retry": {"t": NOW},
        "dead": {"d": NOW},
        "garbage": {"g": NOW},
        "attempts": {"t": "1.0.0.0"},
        "errors": {"t": "ValueError"},
        "reasons": {"d": "rejected"},
        "cancelled": {"u"},
    }
    queue.given(**others)
    queue.replace("a", "+99", b"{}")
    assert queue.state() == {
        **others,
        "pending": {"p": NOW + 50, "a": NOW + 99},
        "messages": {"a": stamped("{}")},
        "stats": {"sent": 1},
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("now", "due", "expected"),
    [(NOW + 0.25, "+10", NOW + 11), (NOW + 0.25, "+0", NOW), (NOW + 0.25, NOW + 10, NOW + 10), (NOW, 0, 0)],
)
def test_due_time_is_never_before_the_requested_one(queue, now, due, expected):
    queue.now = now
    assert queue.replace("a", due, b"{}") == [expected, 1]
    assert queue.state()["pending"] == {"a": expected}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("pending", "due", "bell"),
    [
        ({"a": NOW + 10}, "+9", RUNG),
        ({"a": NOW + 10}, "+10", None),
        ({"a": NOW + 10}, "+11", None),
        ({"b": NOW + 10}, "+9", RUNG),
        ({"b": NOW + 10}, "+10", None),
        ({"a": NOW + 20, "b": NOW + 10}, "+11", None),
    ],
)
def test_bell_rings_for_a_new_earliest_message(queue, pending, due, bell):
    queue.given(pending=pending)
    queue.replace("a", due, b"{}")
    assert queue.state().get("bell") == bell


def test_bell_never_rings_twice(queue):
    queue.given(bell=RUNG)
    queue.replace("a", "+0", b"{}")
    assert queue.state()["bell"] == RUNG


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    due, _ = queue.replace("a", "+5000", b"{}")
    after = queue.server_ms()
    assert before + 5000 <= due <= after + 5001
    assert before <= int(queue.state()["messages"]["a"][:13]) <= after
