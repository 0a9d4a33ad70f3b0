from __future__ import annotations

import pytest

from delayq.errors import DelayqError
from tests.harness.lua.raw import NOW, RUNG, SERVER_TIME


def test_dead_letter_is_pending_again_with_all_its_retries(queue):
    queue.given(
        dead={"a": NOW - 9, "b": NOW - 9},
        attempts={"a": "4.1.2.2", "b": "4.0.0.0"},
        errors={"a": "ValueError", "b": "KeyError"},
        reasons={"a": "exhausted", "b": "exhausted"},
        messages={"a": "A", "b": "B"},
    )
    assert queue.requeue(["a"]) == [1]
    assert queue.state() == {
        "dead": {"b": NOW - 9},
        "pending": {"a": NOW},
        "attempts": {"a": "4.1.4.0", "b": "4.0.0.0"},
        "errors": {"a": "ValueError", "b": "KeyError"},
        "reasons": {"b": "exhausted"},
        "messages": {"a": "A", "b": "B"},
        "stats": {"requeued": 1},
        "bell": RUNG,
    }


def test_dead_letter_without_its_payload_stays_dead(queue):
    queue.given(dead={"a": NOW}, attempts={"a": "0.1.0.0"}, reasons={"a": "payload-missing"})
    before = queue.state()
    assert queue.requeue(["a"]) == [0]
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "garbage"])
def test_message_that_is_not_dead_is_unchanged(queue, state):
    queue.given(messages={"a": "{}"}, **{state: {"a": NOW + 7}})
    before = queue.state()
    assert queue.requeue(["a", "nowhere"]) == [0, 0]
    assert queue.state() == before


def test_replies_are_in_the_order_of_the_ids(queue):
    queue.given(
        dead={"a": NOW, "missing": NOW, "c": NOW},
        attempts={"a": "1.0.0.0", "missing": "1.0.0.0", "c": "2.0.0.0"},
        messages={"a": "A", "c": "C", "alive": "L"},
        ready={"alive": NOW},
    )
    assert queue.requeue(["missing", "a", "alive", "c", "a"], "+10") == [0, 1, 0, 1, 0]
    after = queue.state()
    assert after["pending"] == {"a": NOW + 10, "c": NOW + 10}
    assert after["dead"] == {"missing": NOW}
    assert after["ready"] == {"alive": NOW}
    assert after["attempts"] == {"a": "1.0.1.0", "missing": "1.0.0.0", "c": "2.0.2.0"}
    assert after["stats"] == {"requeued": 2}


def test_dead_letter_that_died_since_is_unchanged(queue):
    died = {"before": NOW - 1, "then": NOW, "since": NOW + 1, "fraction": NOW + 0.5}
    queue.given(dead=died, messages=dict.fromkeys(died, "{}"))
    assert queue.requeue(list(died), up_to=NOW) == [1, 1, 0, 0]
    assert queue.state()["dead"] == {"since": NOW + 1, "fraction": NOW + 0.5}


def test_attempt_numbers_keep_rising_after_a_requeue(queue):
    queue.send([("a", "+0", b"{}")])
    queue.nack("a", queue.deliver("a"), 0)
    queue.reject("a", queue.deliver("a"), "exhausted")
    queue.requeue(["a"])
    assert queue.deliver("a") == "2.0.2.0-0"


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("now", "due", "expected"),
    [(NOW + 0.25, "+10", NOW + 11), (NOW + 0.25, "+0", NOW), (NOW + 0.25, NOW + 10, NOW + 10), (NOW, 0, 0)],
)
def test_due_time_is_never_before_the_requested_one(queue, now, due, expected):
    queue.now = now
    queue.given(dead={"a": NOW - 5}, messages={"a": "{}"})
    queue.requeue(["a"], due)
    assert queue.state()["pending"] == {"a": expected}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("state", "bell"),
    [
        ({}, RUNG),
        ({"pending": {"b": NOW + 11}}, RUNG),
        ({"pending": {"b": NOW + 10}}, None),
        ({"pending": {"b": NOW + 9}}, None),
        ({"bell": RUNG}, RUNG),
    ],
)
def test_bell_rings_once_for_new_earliest_messages(queue, state, bell):
    queue.given(dead={"a": NOW, "c": NOW}, messages={"a": "{}", "c": "{}"}, **state)
    queue.requeue(["a", "c"], "+10")
    assert queue.state().get("bell") == bell


def test_thousand_dead_letters_fit_in_one_call(queue):
    ids = [f"m{i}" for i in range(1001)]
    queue.given(dead=dict.fromkeys(ids, NOW), messages=dict.fromkeys(ids, "{}"), reasons=dict.fromkeys(ids, "rejected"))
    assert queue.requeue(ids[:1000]) == [1] * 1000
    after = queue.state()
    assert after["dead"] == {"m1000": NOW}
    assert after["reasons"] == {"m1000": "rejected"}
    assert after["pending"] == dict.fromkeys(ids[:1000], NOW)


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(dead={"a": NOW}, messages={"a": "{}"})
    before = queue.server_ms()
    queue.requeue(["a"], "+5000")
    assert before + 5000 <= queue.state()["pending"]["a"] <= queue.server_ms() + 5001


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("key", ["reasons", "stats", "attempts", "pending"])
def test_overwritten_key_loses_no_message(queue, key):
    queue.given(dead={"a": NOW, "b": NOW}, messages={"a": "{}", "b": "{}"})
    queue.redis.set(getattr(queue.keys, key), "x")
    with pytest.raises(DelayqError):
        queue.requeue(["a", "b"])
    assert len(queue.redis.zrange(queue.keys.dead, 0, -1)) == 2
