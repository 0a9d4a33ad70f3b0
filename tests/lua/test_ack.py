from __future__ import annotations

from tests.lua.raw import LEASE, NOW


def test_acked_message_is_gone(queue):
    queue.given(unack={"a": NOW + LEASE + 0.25}, messages={"a": "{}"})
    assert queue.ack([("a", "0.0.0.0-250")]) == [1]
    assert queue.state() == {"stats": {"acked": 1}}


def test_all_that_was_known_of_it_is_gone_too(queue):
    queue.given(
        unack={"a": NOW + LEASE, "b": NOW + LEASE},
        attempts={"a": "2.1.0.0", "b": "1.0.0.0"},
        errors={"a": "ValueError", "b": "KeyError"},
        cancelled={"a", "b"},
        messages={"a": "A", "b": "B"},
        stats={"acked": 4},
    )
    assert queue.ack([("a", "2.1.0.0-0")]) == [1]
    assert queue.state() == {
        "unack": {"b": NOW + LEASE},
        "attempts": {"b": "1.0.0.0"},
        "errors": {"b": "KeyError"},
        "cancelled": {"b"},
        "messages": {"b": "B"},
        "stats": {"acked": 5},
    }


def test_replies_stand_in_the_order_of_the_messages(queue):
    queue.given(
        unack={"a": NOW + LEASE, "b": NOW + LEASE, "c": NOW + LEASE},
        attempts={"b": "1.0.0.0", "c": "1.0.0.0"},
        messages={"a": "A", "b": "B", "c": "C", "d": "D"},
    )
    shown = [("d", "0.0.0.0-0"), ("a", "0.0.0.0-0"), ("b", "0.0.0.0-0"), ("c", "1.0.0.0-0")]
    assert queue.ack(shown) == [0, 1, 0, 1]
    assert queue.state() == {
        "unack": {"b": NOW + LEASE},
        "attempts": {"b": "1.0.0.0"},
        "messages": {"b": "B", "d": "D"},
        "stats": {"acked": 2},
    }


def test_lease_that_has_ended_is_still_the_callers_until_it_is_taken_back(queue):
    queue.given(unack={"a": NOW - 1}, messages={"a": "{}"})
    assert queue.ack([("a", "0.0.0.0-0")]) == [1]
    assert queue.state() == {"stats": {"acked": 1}}


def test_message_without_its_payload_is_acked(queue):
    queue.given(unack={"a": NOW + LEASE})
    assert queue.ack([("a", "0.0.0.0-0")]) == [1]
    assert queue.state() == {"stats": {"acked": 1}}


def test_message_named_twice_counts_once(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "1.0.0.0"}, messages={"a": "{}"})
    queue.ack([("a", "1.0.0.0-0"), ("a", "1.0.0.0-0")])
    assert queue.state() == {"stats": {"acked": 1}}


def test_thousand_messages_fit_a_call(queue):
    ids = [f"m{i}" for i in range(1001)]
    queue.given(
        unack=dict.fromkeys(ids, NOW + LEASE),
        attempts=dict.fromkeys(ids, "1.0.0.0"),
        errors=dict.fromkeys(ids, "ValueError"),
        messages=dict.fromkeys(ids, "{}"),
    )
    assert queue.ack([(message_id, "1.0.0.0-0") for message_id in ids[:1000]]) == [1] * 1000
    assert queue.state() == {
        "unack": {"m1000": NOW + LEASE},
        "attempts": {"m1000": "1.0.0.0"},
        "errors": {"m1000": "ValueError"},
        "messages": {"m1000": "{}"},
        "stats": {"acked": 1000},
    }


def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    assert queue.ack([("a", stale)]) == [0]
    assert queue.state() == before
