from __future__ import annotations

import pytest

from delayq.errors import DelayqError
from tests.harness.lua.raw import NOW, RUNG, SERVER_TIME, stamped


def test_edited_dead_letter_is_pending_with_its_new_envelope_and_no_used_retries(queue):
    queue.given(
        dead={"a": NOW - 9, "b": NOW - 9},
        attempts={"a": "4.1.2.2"},
        errors={"a": "ValueError"},
        reasons={"a": "exhausted", "b": "rejected"},
        messages={"a": stamped("old", NOW - 99), "b": "B"},
    )
    assert queue.edit("a", NOW - 9, "+0", b"new", NOW - 99) is True
    assert queue.state() == {
        "dead": {"b": NOW - 9},
        "pending": {"a": NOW},
        "attempts": {"a": "4.1.4.0"},
        "errors": {"a": "ValueError"},
        "reasons": {"b": "rejected"},
        "messages": {"a": stamped("new", NOW - 99), "b": "B"},
        "stats": {"requeued": 1},
        "bell": RUNG,
    }


def test_dead_letter_without_a_payload_gets_one(queue):
    queue.given(dead={"a": NOW}, reasons={"a": "payload-missing"})
    assert queue.edit("a", NOW, "+0", b"new") is True
    assert queue.state()["messages"] == {"a": stamped("new")}
    assert "reasons" not in queue.state()


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "garbage"])
def test_message_that_is_no_longer_dead_is_unchanged(queue, state):
    queue.given(messages={"a": "old"}, **{state: {"a": NOW}})
    before = queue.state()
    assert queue.edit("a", NOW, "+0", b"new") is False
    assert queue.state() == before


def test_unknown_message_is_not_created(queue):
    assert queue.edit("a", NOW, "+0", b"new") is False
    assert queue.state() == {}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("died", [NOW - 1, NOW + 1, f"{NOW}.5"])
def test_message_that_died_again_is_unchanged(queue, died):
    queue.given(dead={"a": NOW}, messages={"a": "old"})
    before = queue.state()
    assert queue.edit("a", died, "+0", b"new") is False
    assert queue.state() == before


def test_fractional_time_of_death_is_recognised(queue):
    queue.given(dead={"a": NOW + 0.1}, messages={"a": "old"})
    assert queue.edit("a", f"{NOW + 0.1:.17g}", "+0", b"new") is True


def test_attempt_numbers_keep_rising(queue):
    queue.send([("a", "+0", b"{}")])
    queue.nack("a", queue.deliver("a"), 0)
    queue.reject("a", queue.deliver("a"), "exhausted")
    queue.edit("a", NOW, "+0", b"new")
    assert queue.deliver("a") == "2.0.2.0-0"


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("now", "due", "expected"),
    [(NOW + 0.25, "+10", NOW + 11), (NOW + 0.25, "+0", NOW), (NOW + 0.25, NOW + 10, NOW + 10), (NOW, 0, 0)],
)
def test_due_time_is_never_before_the_requested_one(queue, now, due, expected):
    queue.now = now
    queue.given(dead={"a": NOW - 5}, messages={"a": "{}"})
    queue.edit("a", NOW - 5, due, b"new")
    assert queue.state()["pending"] == {"a": expected}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("state", "bell"),
    [
        ({}, RUNG),
        ({"pending": {"b": NOW + 11}}, RUNG),
        ({"pending": {"b": NOW + 10}}, None),
        ({"bell": RUNG}, RUNG),
    ],
)
def test_bell_rings_once_for_a_new_earliest_message(queue, state, bell):
    queue.given(dead={"a": NOW}, messages={"a": "{}"}, **state)
    queue.edit("a", NOW, "+10", b"new")
    assert queue.state().get("bell") == bell


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(dead={"a": NOW}, messages={"a": "{}"})
    before = queue.server_ms()
    queue.edit("a", NOW, "+5000", b"new")
    assert before + 5000 <= queue.state()["pending"]["a"] <= queue.server_ms() + 5001
    assert before <= int(queue.state()["messages"]["a"][:13]) <= queue.server_ms()


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("key", ["reasons", "stats", "attempts", "pending"])
def test_overwritten_key_loses_no_message(queue, key):
    queue.given(dead={"a": NOW}, messages={"a": "old"})
    queue.redis.set(getattr(queue.keys, key), "x")
    with pytest.raises(DelayqError):
        queue.edit("a", NOW, "+0", b"new")
    assert queue.redis.zrange(queue.keys.dead, 0, -1) == ["a"]
    assert queue.redis.get(queue.keys.message("a")) == "old"
