from __future__ import annotations

import pytest

from tests.harness.lua.raw import LEASE, NOW


def test_acked_message_is_gone(queue):
    queue.given(unack={"a": NOW + LEASE + 0.25}, messages={"a": "{}"})
    assert queue.ack([("a", "0.0.0.0-250")]) == [1]
    assert queue.state() == {"stats": {"acked": 1}}


def test_everything_known_about_an_acked_message_is_gone(queue):
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


def test_replies_are_in_the_order_of_the_messages(queue):
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


def test_expired_lease_can_be_used_until_it_is_taken_back(queue):
    queue.given(unack={"a": NOW - 1}, messages={"a": "{}"})
    assert queue.ack([("a", "0.0.0.0-0")]) == [1]
    assert queue.state() == {"stats": {"acked": 1}}


def test_message_without_its_payload_is_acked(queue):
    queue.given(unack={"a": NOW + LEASE})
    assert queue.ack([("a", "0.0.0.0-0")]) == [1]
    assert queue.state() == {"stats": {"acked": 1}}


def test_message_acked_twice_counts_once(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "1.0.0.0"}, messages={"a": "{}"})
    queue.ack([("a", "1.0.0.0-0"), ("a", "1.0.0.0-0")])
    assert queue.state() == {"stats": {"acked": 1}}


def test_thousand_messages_fit_in_one_call(queue):
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


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    assert queue.ack([("a", stale)]) == [0]
    assert queue.state() == before


def test_one_call_takes_receipts_of_all_kinds(queue):
    """Fresh ones from two claims, retried ones, stale ones, unknown ids, and one that is used twice."""
    first, second = NOW + LEASE + 0.25, NOW + LEASE + 0.75
    queue.given(
        unack={
            "a1": first,
            "a2": first,
            "a3": first,
            "b1": second,
            "b2": second,
            "r1": first,
            "r2": second,
            "s": first,
        },
        attempts={"r1": "1.0.0.0", "r2": "2.1.0.0", "s": "3.0.0.0", "later": "1.0.0.0"},
        errors={"r1": "E1", "r2": "E2", "s": "ES"},
        cancelled={"a2", "r2", "s"},
        messages=dict.fromkeys(["a1", "a2", "a3", "b1", "b2", "r1", "r2", "s", "gone"], "{}"),
        stats={"acked": 10},
    )
    shown = [
        ("gone", "0.0.0.0-250", 0),
        ("b1", "0.0.0.0-750", 1),
        ("a1", "0.0.0.0-250", 1),
        ("a3", "0.0.0.0-750", 0),  # from the other claim
        ("r1", "1.0.0.0-250", 1),
        ("b2", "0.0.0.0-250", 0),
        ("s", "2.0.0.0-250", 0),  # from the attempt before
        ("a2", "0.0.0.0-250", 1),
        ("r2", "2.1.0.0-750", 1),
        ("s", "0.0.0.0-250", 0),
        ("a1", "0.0.0.0-250", 1),
    ]
    assert queue.ack([(message_id, receipt) for message_id, receipt, _ in shown]) == [right for *_, right in shown]
    assert queue.state() == {
        "unack": {"a3": first, "b2": second, "s": first},
        "attempts": {"s": "3.0.0.0", "later": "1.0.0.0"},
        "errors": {"s": "ES"},
        "cancelled": {"s"},
        "messages": dict.fromkeys(["a3", "b2", "s", "gone"], "{}"),
        "stats": {"acked": 15},
    }


def test_message_with_a_valid_and_a_stale_receipt_is_acked_once(queue):
    for number, order in enumerate(([0, 1], [1, 0])):
        queue.given(unack={"a": NOW + LEASE}, messages={"a": "{}"})
        shown = [("a", "0.0.0.0-0"), ("a", "1.0.0.0-0")]
        assert queue.ack([shown[i] for i in order]) == [1 - i for i in order]
        assert queue.state() == {"stats": {"acked": number + 1}}


def test_stale_receipts_among_a_thousand_are_refused(queue):
    ids = [f"m{i}" for i in range(1000)]
    held = {message_id: NOW + LEASE + (i % 2) / 4 for i, message_id in enumerate(ids)}
    retried = {message_id: f"{i % 7 + 1}.0.0.0" for i, message_id in enumerate(ids) if i % 5 == 0}
    queue.given(unack=held, attempts=retried, errors=dict.fromkeys(retried, "E"), messages=dict.fromkeys(ids, "{}"))
    receipts = [f"{retried.get(each, '0.0.0.0')}-{'250' if i % 2 else '0'}" for i, each in enumerate(ids)]
    stale = {each for i, each in enumerate(ids) if i % 3 == 0}
    shown = [(each, receipt + ("1" if each in stale else "")) for each, receipt in zip(ids, receipts, strict=True)]
    assert queue.ack(shown) == [0 if each in stale else 1 for each in ids]
    assert queue.state() == {
        "unack": {each: score for each, score in held.items() if each in stale},
        "attempts": {each: known for each, known in retried.items() if each in stale},
        "errors": dict.fromkeys(retried.keys() & stale, "E"),
        "messages": dict.fromkeys(stale, "{}"),
        "stats": {"acked": 1000 - len(stale)},
    }


def test_message_leased_by_another_program_in_whole_milliseconds_is_acked(queue):
    queue.given(unack={"a": 2**53 - 1, "b": 0, "c": -1}, messages={"a": "{}", "b": "{}", "c": "{}"})
    assert queue.ack([("a", "0.0.0.0-0"), ("b", "0.0.0.0-0"), ("c", "0.0.0.0-0")]) == [1, 1, 1]
    assert queue.state() == {"stats": {"acked": 3}}
