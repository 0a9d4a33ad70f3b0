from __future__ import annotations

from typing import Any

import pytest

from delayq.errors import DuplicateMessage, StaleReceipt
from tests.harness.lua.raw import LEASE, NOW, RUNG, RawQueue, stamped

OURS = ("a", "0.0.0.0-250")
HELD: dict[str, Any] = {"unack": {"a": NOW + LEASE + 0.25}, "messages": {"a": "{}"}, "stats": {"sent": 1}}


def test_message_is_gone_and_its_followers_are_pending(queue):
    queue.given(**HELD)
    assert queue.ack_then(*OURS, [("b", "+5000", b"B", "ignore"), ("c", NOW + 7, b"C", "new")]) == 1
    assert queue.state() == {
        "pending": {"b": NOW + 5000, "c": NOW + 7},
        "messages": {"b": stamped("B"), "c": stamped("C")},
        "stats": {"sent": 3, "acked": 1},
        "bell": RUNG,
    }


def test_ack_works_without_followers(queue):
    queue.given(**HELD)
    assert queue.ack_then(*OURS, []) == 1
    assert queue.state() == {"stats": {"sent": 1, "acked": 1}}


def test_everything_known_about_the_message_is_gone(queue):
    queue.given(
        unack={"a": NOW + LEASE, "o": NOW + LEASE},
        attempts={"a": "2.1.0.0", "o": "1.0.0.0"},
        errors={"a": "ValueError", "o": "KeyError"},
        cancelled={"a", "o"},
        messages={"a": "A", "o": "O"},
    )
    queue.ack_then("a", "2.1.0.0-0", [("b", "+1", b"B", "new")])
    assert queue.state() == {
        "pending": {"b": NOW + 1},
        "unack": {"o": NOW + LEASE},
        "attempts": {"o": "1.0.0.0"},
        "errors": {"o": "KeyError"},
        "cancelled": {"o"},
        "messages": {"o": "O", "b": stamped("B")},
        "stats": {"acked": 1, "sent": 1},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
def test_stale_receipt_sends_nothing(queue, stale):
    before = queue.state()
    for choice in ("ignore", "replace", "error", "new"):
        with pytest.raises(StaleReceipt, match="message a was settled, or its lease ran out"):
            queue.ack_then("a", stale, [("f", "+0", b"F", choice)])
    assert queue.state() == before


def test_repeated_call_succeeds_while_the_random_id_of_the_first_exists(queue):
    queue.given(**HELD)
    call = (*OURS, [("chosen", "+5", b"B", "ignore"), ("random", "+5", b"C", "new")])
    assert queue.ack_then(*call) == 1
    after = queue.state()
    assert queue.ack_then(*call) == 1
    assert queue.state() == after
    with pytest.raises(StaleReceipt):
        queue.ack_then(*OURS, [("chosen", "+5", b"B", "ignore")])  # another delivery may have sent it
    queue.redis.delete(queue.keys.pending, queue.keys.message("random"))  # as if it had been handled
    with pytest.raises(StaleReceipt):
        queue.ack_then(*call)


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
class TestIdThatExists:
    def test_is_left_unchanged(self, queue, state):
        self.given(queue, state)
        before = queue.state()
        queue.ack_then(*OURS, [("b", "+5", b"new", "ignore"), ("c", "+9", b"C", "error")])
        after = queue.state()
        assert after["messages"] == {"b": "old", "c": stamped("C")}
        assert after[state]["b"] == before[state]["b"]
        assert (after["attempts"], after["errors"]) == ({"b": "3.1.2.1"}, {"b": "E"})
        assert after["stats"] == {"sent": 2, "acked": 1}

    def test_error_choice_refuses_the_whole_call(self, queue, state):
        self.given(queue, state)
        before = queue.state()
        with pytest.raises(DuplicateMessage, match="message b exists already: nothing was changed"):
            queue.ack_then(*OURS, [("c", "+9", b"C", "new"), ("b", "+5", b"new", "error")])
        assert queue.state() == before

    def test_replace_choice_does_what_replace_does(self, queue, state):
        self.given(queue, state)
        queue.replace("b", "+5", b"new")
        expected = {name: value for name, value in queue.state().items() if name != "stats"}
        queue.redis.flushdb()
        self.given(queue, state)
        queue.ack_then(*OURS, [("b", "+5", b"new", "replace")])
        found = queue.state()
        assert found.pop("stats") == {"sent": 1, "acked": 1, "replaced": 1}
        expected["unack"].pop("a")
        expected["messages"].pop("a")
        assert found == {name: value for name, value in expected.items() if value}

    def given(self, queue: RawQueue, state: str) -> None:
        queue.given(**HELD)
        queue.given(**{state: {"b": NOW + 3.25}}, messages={"b": "old"})
        queue.given(attempts={"b": "3.1.2.1"}, errors={"b": "E"})


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("choice", ["ignore", "replace", "error"])
def test_id_in_garbage_is_sent_as_new(queue, choice):
    queue.given(**HELD)
    queue.given(garbage={"b": NOW - 1}, messages={"b": "old"})
    queue.ack_then(*OURS, [("b", "+5", b"new", choice)])
    assert queue.state() == {
        "pending": {"b": NOW + 5},
        "messages": {"b": stamped("new")},
        "stats": {"sent": 2, "acked": 1},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("choice", ["ignore", "replace", "error"])
def test_message_can_be_followed_by_one_with_its_own_id(queue, choice):
    queue.given(**HELD)
    queue.given(attempts={"a": "1.0.0.0"}, errors={"a": "E"})
    queue.ack_then("a", "1.0.0.0-250", [("a", "+5", b"next", choice)])
    assert queue.state() == {
        "pending": {"a": NOW + 5},
        "messages": {"a": stamped("next")},
        "stats": {"sent": 2, "acked": 1},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("choice", ["ignore", "replace", "error", "new"])
def test_payload_without_a_message_is_overwritten(queue, choice):
    queue.given(**HELD | {"stats": {}})
    queue.given(messages={"b": "left by a refused send"})
    queue.ack_then(*OURS, [("b", "+5", b"new", choice)])
    state = queue.state()
    assert state["stats"] == {"acked": 1, "sent": 1}
    assert state["messages"] == {"b": stamped("new")}


def test_bell_rings_only_for_a_new_earliest_message(queue):
    for due, bell in (("+11", None), ("+10", None), ("+9", RUNG)):
        queue.redis.flushdb()
        queue.given(**HELD)
        queue.given(pending={"p": NOW + 10})
        queue.ack_then(*OURS, [("b", due, b"B", "new")])
        assert queue.state().get("bell") == bell


def test_due_time_is_never_before_the_requested_one(queue):
    queue.given(**HELD)
    queue.now = NOW + 0.25
    queue.ack_then(*OURS, [("b", "+10", b"B", "new"), ("c", "+0", b"C", "new")])
    assert queue.state()["pending"] == {"b": NOW + 11, "c": NOW}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("choice", ["ignore", "replace", "new"])
def test_hundred_messages_can_follow(queue, choice):
    queue.given(**HELD)
    ids = [f"m{i}" for i in range(100)]
    if choice == "replace":
        queue.given(
            ready=dict.fromkeys(ids, NOW), messages=dict.fromkeys(ids, "old"), attempts=dict.fromkeys(ids, "1.0.0.0")
        )
    queue.ack_then(*OURS, [(each, f"+{i}", b"{}", choice) for i, each in enumerate(ids)])
    state = queue.state()
    assert state["pending"] == {each: NOW + i for i, each in enumerate(ids)}
    assert state["messages"] == dict.fromkeys(ids, stamped("{}"))
    assert "ready" not in state


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
    queue.given(**HELD)
    queue.ack_then(*OURS, [("b", "+99", b"B", "replace")])
    assert queue.state() == {
        **others,
        "pending": {"p": NOW + 50, "b": NOW + 99},
        "messages": {"b": stamped("B")},
        "stats": {"sent": 2, "acked": 1},
    }
