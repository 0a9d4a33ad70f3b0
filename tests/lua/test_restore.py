from __future__ import annotations

import pytest

from delayq.errors import ServerOutOfMemory
from delayq.model.backup import KeptMessage
from tests.harness.lua.raw import LEASE, NOW, RUNG, SERVER_TIME, stamped

OLD = NOW - 5000
STATES = ["pending", "ready", "retry", "dead"]


def kept(message_id: str = "a", score: int = NOW - 9, **known: str) -> KeptMessage:
    return KeptMessage(message_id, score, stamped(message_id.upper(), OLD).encode(), **known)


@pytest.mark.parametrize("target", STATES)
def test_message_is_restored_with_everything_known_about_it(queue, target):
    assert queue.restore(target, [kept(deliveries="3.1.2.1", error="E", reason="R")]) == [1]
    state = queue.state()
    state.pop("bell", None)
    assert state == {
        target: {"a": NOW - 9},
        "messages": {"a": stamped("A", OLD)},
        "attempts": {"a": "3.1.2.1"},
        "errors": {"a": "E"},
        "reasons": {"a": "R"},
        "stats": {"sent": 1},
    }


def test_message_without_details_is_restored_without_details(queue):
    queue.restore("dead", [kept(), kept("b", NOW - 8)])
    assert queue.state() == {
        "dead": {"a": NOW - 9, "b": NOW - 8},
        "messages": {"a": stamped("A", OLD), "b": stamped("B", OLD)},
        "stats": {"sent": 2},
    }


def test_used_retries_stay_used(queue):
    queue.restore("retry", [kept(deliveries="2.0.0.0")])
    assert queue.ready_to_unack(1, LEASE).deliveries == ["2.0.0.0"]


@pytest.mark.same_on_all_servers
def test_existing_id_is_unchanged(queue, subtests):
    for messages in [{"a": "old"}, {}]:
        for state in ["pending", "ready", "unack", "retry", "dead"]:
            for target in STATES:
                queue.clear()
                with subtests.test(target=target, state=state, messages=messages):
                    queue.given(messages=messages, attempts={"a": "1.0.0.0"}, **{state: {"a": NOW}})
                    before = queue.state()
                    assert queue.restore(target, [kept(deliveries="3.0.0.0", error="E")]) == [0]
                    assert queue.state() == before


def test_second_run_changes_nothing(queue):
    messages = [kept(error="E"), kept("b")]
    assert queue.restore("retry", messages) == [1, 1]
    before = queue.state()
    assert queue.restore("retry", [*messages, kept("c")]) == [0, 0, 1]
    after = queue.state()
    assert after["retry"] == before["retry"] | {"c": NOW - 9}
    assert after["stats"] == {"sent": 3}


def test_message_in_garbage_is_restored(queue):
    queue.given(garbage={"a": NOW, "b": NOW}, messages={"a": "old", "b": "old"}, stats={"sent": 2, "purged": 2})
    assert queue.restore("pending", [kept()]) == [1]
    state = queue.state()
    assert state["garbage"] == {"b": NOW}
    assert state["messages"] == {"a": stamped("A", OLD), "b": "old"}


def test_live_message_also_in_garbage_exists_and_keeps_its_payload(queue):
    queue.given(ready={"a": NOW}, garbage={"a": NOW - 1}, messages={"a": "old"}, stats={"sent": 1})
    assert queue.restore("pending", [kept()]) == [0]
    state = queue.state()
    assert (state["ready"], state["messages"]) == ({"a": NOW}, {"a": "old"})
    assert "garbage" not in state


def test_message_without_a_payload_does_not_get_one_from_garbage(queue):
    queue.given(garbage={"a": NOW - 1}, messages={"a": "old"})
    assert queue.restore("dead", [KeptMessage("a", NOW - 9, b"", reason="payload-missing")]) == [1]
    assert "messages" not in queue.state()


def test_dead_letter_without_a_payload_is_restored_without_one(queue):
    assert queue.restore("dead", [KeptMessage("a", NOW, b"", "", "", "payload-missing")]) == [1]
    assert queue.state() == {"dead": {"a": NOW}, "reasons": {"a": "payload-missing"}, "stats": {"sent": 1}}


@pytest.mark.same_on_all_servers
def test_bell_rings_for_a_new_earliest_message(queue, subtests):
    for there, bell in [({}, RUNG), ({"b": NOW - 8}, RUNG), ({"b": NOW - 9}, None)]:
        for target in ["pending", "ready", "retry"]:
            queue.clear()
            with subtests.test(target=target, there=there, bell=bell):
                queue.given(**{target: there})
                queue.restore(target, [kept()])
                assert queue.state().get("bell") == bell


def test_bell_does_not_ring_for_dead_letters(queue):
    queue.restore("dead", [kept()])
    assert "bell" not in queue.state()


def test_ledger_has_the_server_time_by_default(queue):
    queue.now = SERVER_TIME
    queue.given(meta={"events": 10})
    before = queue.server_ms()
    queue.restore("dead", [kept()])
    ((_, entry),) = queue.redis.xrange(queue.keys.events)
    assert before <= int(entry["at"]) <= queue.server_ms()
    assert (entry["event"], entry["due"], entry["reason"]) == ("sent", "", "restored")


def test_restore_without_memory_is_refused_as_a_whole(queue):
    queue.given(garbage={"a": NOW}, messages={"a": "old"})
    before = queue.state()
    queue.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemory):
            queue.restore("retry", [kept(error="E"), kept("b")])
        assert queue.state() == before
    finally:
        queue.redis.config_set("maxmemory", 0)


def test_largest_allowed_call_restores_all_messages(queue):
    ids = [f"m{number}" for number in range(500)]
    assert queue.restore("pending", [kept(each, error="E", deliveries="1.0.0.0") for each in ids]) == [1] * 500
    assert queue.state()["stats"] == {"sent": 500}
