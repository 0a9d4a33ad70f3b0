from __future__ import annotations

import pytest

from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME, RawQueue, receipts


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "dead"])
def test_waiting_message_is_removed_with_everything_known_about_it(queue, state):
    queue.given(
        attempts={"a": "1.0.0.0", "b": "2.0.0.0"},
        errors={"a": "A", "b": "B"},
        reasons={"a": "A", "b": "B"},
        messages={"a": "A", "b": "B"},
        stats={"sent": 2},
        **{state: {"a": NOW + 7, "b": NOW + 8}},
    )
    assert queue.cancel("a") == "cancelled"
    assert queue.state() == {
        state: {"b": NOW + 8},
        "garbage": {"a": NOW},
        "attempts": {"b": "2.0.0.0"},
        "errors": {"b": "B"},
        "reasons": {"b": "B"},
        "messages": {"a": "A", "b": "B"},
        "stats": {"sent": 2, "cancelled": 1},
    }


def test_running_message_is_marked_and_keeps_running(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "1.0.0.0"}, messages={"a": "{}"})
    assert queue.cancel("a") == "in_flight"
    assert queue.state() == {
        "unack": {"a": NOW + LEASE},
        "attempts": {"a": "1.0.0.0"},
        "cancelled": {"a"},
        "messages": {"a": "{}"},
    }


def test_running_message_can_be_cancelled_again(queue):
    queue.given(unack={"a": NOW + LEASE}, cancelled={"a"})
    before = queue.state()
    assert queue.cancel("a") == "in_flight"
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", [{}, {"garbage": {"a": NOW}, "messages": {"a": "{}"}}, {"pending": {"b": NOW}}])
def test_unknown_message_changes_nothing(queue, state):
    queue.given(**state)
    before = queue.state()
    assert queue.cancel("a") == "unknown"
    assert queue.state() == before


@pytest.mark.parametrize("state", ["pending", "unack"])
def test_only_a_member_of_the_given_group_is_cancelled(queue, state):
    queue.given(members={"a": "team", "b": "others"}, **{state: {"a": NOW, "b": NOW, "c": NOW}})
    before = queue.state()
    assert [queue.cancel("b", group="team"), queue.cancel("c", group="team")] == ["unknown", "unknown"]
    assert queue.state() == before
    assert queue.cancel("a", group="team") in ("cancelled", "in_flight")


def test_message_cancelled_twice_counts_once(queue):
    queue.given(pending={"a": NOW}, messages={"a": "{}"})
    assert [queue.cancel("a"), queue.cancel("a")] == ["cancelled", "unknown"]
    assert queue.state()["stats"] == {"cancelled": 1}


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(pending={"a": NOW})
    before = queue.server_ms()
    queue.cancel("a")
    assert before <= queue.state()["garbage"]["a"] <= queue.server_ms()


def taken_by_a_consumer(queue: RawQueue) -> str:
    """Hand out message a to a consumer; return the receipt."""
    queue.given(ready={"a": NOW}, messages={"a": "{}"})
    return receipts(queue.ready_to_unack(1, LEASE, "me", f"{1:032}"))["a"]


def test_running_message_of_a_consumer_is_to_be_stopped_by_its_receipt(queue):
    receipt = taken_by_a_consumer(queue)
    assert queue.cancel("a") == "in_flight"
    assert queue.cancel("a", running=True) == "stopping"
    queue.now += 5
    assert queue.cancel("a", running=True) == "stopping"
    state = queue.state()
    assert (state["stops"], state["cancelled"]) == ({f"{receipt}\0a": NOW + 5}, {"a"})
    assert 0 < queue.redis.pttl(queue.keys.stops) <= 86_400_000
    other = queue.stopping([("a", receipt), ("a", "1.0.0.0-1"), ("b", receipt)])
    assert [each is not None for each in other] == [True, False, False]
    assert queue.has_stops() == 1
    assert queue.reject("a", receipt, "stopped") == -1
    assert queue.stopped([("a", receipt)]) == 1
    assert queue.has_stops() == 0


def test_received_message_cannot_be_stopped(queue):
    queue.given(ready={"a": NOW}, messages={"a": "{}"})
    for micros in range(0, 1000, 111):
        queue.now = NOW + micros / 1000
        receipt = receipts(queue.ready_to_unack(1, LEASE, "program"))["a"]
        assert queue.cancel("a", running=True) == "in_flight"
        assert "stops" not in queue.state()
        queue.redis.srem(queue.keys.cancelled, "a")
        assert queue.release("a", receipt, NOW) == 1


def test_every_delivery_of_a_consumer_can_be_stopped(queue):
    queue.given(ready={"a": NOW}, messages={"a": "{}"})
    for number, micros in enumerate(range(0, 1000, 111)):
        queue.now = NOW + micros / 1000
        receipt = receipts(queue.ready_to_unack(1, LEASE, "me", f"{number:032}"))["a"]
        assert queue.cancel("a", running=True) == "stopping"
        queue.redis.delete(queue.keys.cancelled, queue.keys.stops)
        assert queue.release("a", receipt, NOW) == 1


def test_requests_for_deliveries_that_have_ended_are_removed_and_others_kept(queue):
    receipt = taken_by_a_consumer(queue)
    ended = {f"0.0.0.0-{n}\0m{n}": NOW - 100 + n for n in range(25)}
    queue.given(unack={"long": NOW + LEASE}, stops={"0.0.0.0-0\0long": NOW - 1000} | ended)
    for _ in range(3):
        assert queue.cancel("a", running=True) == "stopping"
    assert queue.state()["stops"].keys() == {f"{receipt}\0a", "0.0.0.0-0\0long"}
