from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW


def test_payload_keys_of_garbage_are_deleted(queue):
    queue.given(garbage={"a": NOW, "b": NOW, "c": NOW}, messages={"a": "A", "b": "B", "c": "C"})
    assert queue.delete_payloads(["a", "c"]) == 2
    assert queue.state() == {"garbage": {"b": NOW}, "messages": {"b": "B"}, "stats": {"collected": 2}}


def test_id_that_was_sent_again_is_unchanged(queue):
    queue.given(garbage={"a": NOW, "b": NOW}, messages={"a": "old", "b": "old"})
    queue.send([("a", "+10", b"new")])
    before = queue.state()
    assert queue.delete_payloads(["a", "b"]) == 1
    after = queue.state()
    assert after["pending"] == before["pending"]
    assert after["messages"] == {"a": before["messages"]["a"]}
    assert "garbage" not in after
    assert after["stats"] == {"sent": 1, "collected": 1}


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_live_message_also_in_garbage_leaves_garbage_and_keeps_its_payload(queue, state):
    queue.given(**{state: {"a": NOW}}, garbage={"a": NOW, "b": NOW}, messages={"a": "A", "b": "B"})
    assert queue.delete_payloads(["a", "b"]) == 1
    assert queue.state() == {state: {"a": NOW}, "messages": {"a": "A"}, "stats": {"collected": 1}}


def test_no_garbage_changes_nothing(queue):
    queue.given(pending={"a": NOW}, messages={"a": "{}"})
    before = queue.state()
    assert queue.delete_payloads(["a", "nowhere"]) == 0
    assert queue.state() == before


def test_garbage_without_a_payload_is_collected(queue):
    queue.given(garbage={"a": NOW})
    assert queue.delete_payloads(["a"]) == 1
    assert queue.state() == {"stats": {"collected": 1}}


def test_thousand_ids_fit_in_one_call(queue):
    ids = [f"m{i}" for i in range(1001)]
    queue.given(garbage=dict.fromkeys(ids, NOW), messages=dict.fromkeys(ids, "{}"))
    assert queue.delete_payloads(ids[:1000]) == 1000
    assert queue.state() == {"garbage": {"m1000": NOW}, "messages": {"m1000": "{}"}, "stats": {"collected": 1000}}
