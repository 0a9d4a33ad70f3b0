from __future__ import annotations

import pytest

from delayq.protocol.replies import KeyedDelivery
from tests.harness.lua.raw import LEASE, NOW, RUNG
from tests.lua.test_acquire_slot import NET, RECEIPT, keyed, place, slot

ENDED = [KeyedDelivery("k", "a", RECEIPT)]
LOOK = [KeyedDelivery("k", "", "")]


@pytest.fixture
def limited(queue):
    """For key k, a and b run, and c, d and e wait, latest first. For another key, z waits."""
    queue.given(meta={"per_key": 2}, unack=dict.fromkeys("abxyz", NOW + LEASE))
    queue.acquire_slot([*keyed("k", *"ab"), *keyed("kk", *"xyz")], NET)
    for message_id, due in [("c", NOW - 1), ("d", NOW - 2), ("e", NOW - 3)]:
        queue.given(unack={message_id: NOW + LEASE})
        assert queue.acquire_slot(keyed("k", message_id, due=due), NET) == [-1]
    return queue


def test_ended_delivery_lets_the_earliest_waiting_message_go(limited):
    limited.ack([("a", RECEIPT)])
    assert limited.release_slot(ENDED) == 1
    after = limited.state()
    assert after["ready"] == {"e": NOW - 3}
    assert set(after["pending"]) == {"c", "d", "z"}
    assert after["slots"] == dict.fromkeys([slot("k", "b"), slot("k", "e", ""), slot("kk", "x"), slot("kk", "y")], 0)
    assert after["waiting"] == {place("k", "d", NOW - 2): 0, place("k", "c", NOW - 1): 0, place("kk", "z"): 0}
    assert set(after["parked"]) == {"c", "d", "z"}
    assert after["bell"] == RUNG
    assert after["stats"]["promoted"] == 1


def test_delivery_without_a_slot_frees_nothing(limited):
    before = limited.state()
    assert (
        limited.release_slot(
            [KeyedDelivery("k", "a", "1.0.0.0-0"), KeyedDelivery("k", "no", RECEIPT), KeyedDelivery("no", "a", RECEIPT)]
        )
        == 0
    )
    assert limited.state() == before


def test_slot_can_be_released_before_the_delivery_is_settled(limited):
    assert limited.release_slot(ENDED) == 1
    limited.ack([("a", RECEIPT)])
    assert limited.release_slot(ENDED) == 0


def test_repeated_call_lets_only_one_go(limited):
    limited.ack([("a", RECEIPT)])
    assert [limited.release_slot(ENDED), limited.release_slot(ENDED)] == [1, 0]


def test_as_many_messages_go_as_have_ended(limited):
    limited.ack([("a", RECEIPT), ("b", RECEIPT)])
    assert limited.release_slot([*ENDED, KeyedDelivery("k", "b", RECEIPT)]) == 2
    assert limited.state()["ready"] == {"e": NOW - 3, "d": NOW - 2}


def test_message_let_go_begins_even_if_others_came_meanwhile(limited):
    limited.ack([("a", RECEIPT)])
    limited.release_slot(ENDED)
    limited.given(unack={"new": NOW + LEASE})
    assert limited.acquire_slot(keyed("k", "new"), NET) == [-1]
    earlier = limited.deliver("e")
    assert limited.acquire_slot([KeyedDelivery("k", "e", earlier, NOW - 3)], NET) == [NOW - 3]


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("how", ["cancel", "reschedule", "replace"])
def test_message_that_no_longer_waits_is_skipped(limited, how):
    {
        "cancel": lambda: limited.cancel("e"),
        "reschedule": lambda: limited.reschedule("e", NOW + 500),
        "replace": lambda: limited.replace("e", NOW + 500, b"{}"),
    }[how]()
    limited.ack([("a", RECEIPT)])
    assert limited.release_slot(ENDED) == 1
    after = limited.state()
    assert after["ready"] == {"d": NOW - 2}
    assert after["pending"].get("e") == (None if how == "cancel" else NOW + 500)
    assert set(after["parked"]) == {"c", "z"}


def test_parked_message_that_is_already_ready_goes_by_its_due_time(limited):
    limited.now = NOW + NET + 30
    limited.pending_to_ready()
    came = limited.state()["ready"]
    limited.ack([("a", RECEIPT)])
    assert limited.release_slot(ENDED) == 1
    after = limited.state()
    assert after["ready"]["e"] == NOW - 3
    assert after["ready"]["d"] == came["d"] > NOW + NET
    assert slot("k", "e", "") in after["slots"]


def test_parked_message_that_already_runs_is_skipped_and_keeps_its_due_time(limited):
    limited.now = NOW + NET + 30
    limited.pending_to_ready(3)
    limited.redis.zrem(limited.keys.ready, "c", "d")
    limited.redis.zrem(limited.keys.pending, "c", "d")
    receipt = limited.deliver("e")
    assert limited.release_slot(LOOK) == 0
    limited.ack([("a", RECEIPT)])
    assert limited.release_slot(ENDED) == 0
    assert limited.acquire_slot([KeyedDelivery("k", "e", receipt, NOW + NET + 30)], NET) == [NOW - 3]


def test_check_lets_messages_go_in_place_of_lost_deliveries(limited):
    assert limited.release_slot(LOOK) == 0
    limited.redis.zrem(limited.keys.unack, "a", "b")
    assert limited.release_slot(LOOK) == 2
    assert limited.state()["ready"] == {"e": NOW - 3, "d": NOW - 2}
    assert limited.release_slot(LOOK) == 0


def test_check_frees_unused_slots_even_below_the_limit(queue):
    queue.given(meta={"per_key": 9}, unack={"a": NOW + LEASE})
    queue.acquire_slot(keyed("k", "a"), NET)
    queue.given(slots={slot("k", "lost"): 0, slot("k", "cancelled", ""): 0})
    assert queue.release_slot(LOOK) == 0
    assert queue.state()["slots"] == {slot("k", "a"): 0}


def test_unused_reserved_slot_is_passed_on(limited):
    limited.ack([("a", RECEIPT)])
    limited.release_slot(ENDED)
    receipt = limited.deliver("e")
    limited.expire("e", receipt)
    assert limited.release_slot([KeyedDelivery("k", "e", "")]) == 1
    assert limited.state()["ready"] == {"d": NOW - 2}


def test_all_messages_go_once_the_limit_is_removed(limited):
    limited.redis.hdel(limited.keys.meta, "per_key")
    assert limited.release_slot(LOOK) == 3
    after = limited.state()
    assert after["ready"] == {"c": NOW - 1, "d": NOW - 2, "e": NOW - 3}
    assert after["waiting"] == {place("kk", "z"): 0}


def test_each_call_skips_a_bounded_number_of_cancelled_messages(queue):
    queue.given(meta={"per_key": 1}, unack={"a": NOW + LEASE})
    queue.acquire_slot(keyed("k", "a"), NET)
    ids = [f"m{number:04}" for number in range(1500)]
    queue.given(
        waiting={place("k", message_id): 0 for message_id in ids},
        parked=dict.fromkeys(ids, f"{NOW + NET} {NOW - 5}"),
        pending={ids[-1]: NOW + NET},
    )
    queue.ack([("a", RECEIPT)])
    assert [queue.release_slot(ENDED), queue.release_slot(ENDED)] == [0, 1]
    assert queue.state()["ready"] == {ids[-1]: NOW - 5}


def test_statistics_balance_throughout(queue):
    queue.given(meta={"per_key": 1})
    queue.send([(message_id, "+0", b"{}") for message_id in "abc"])
    queue.pending_to_ready()
    queue.ready_to_unack(3, LEASE)
    assert queue.acquire_slot(keyed("k", *"abc", due=NOW), NET) == [NOW, -1, -1]
    receipt = RECEIPT
    for message_id, following in [("a", "b"), ("b", "c"), ("c", None)]:
        assert queue.ack([(message_id, receipt)]) == [1]
        assert queue.release_slot([KeyedDelivery("k", message_id, receipt)]) == (following is not None)
        if following:
            receipt = queue.deliver(following)
            assert queue.acquire_slot([KeyedDelivery("k", following, receipt, NOW)], NET) == [NOW]
    after = queue.state()
    assert set(after) <= {"meta", "stats", "bell"}
    assert after["stats"]["delivered"] == after["stats"]["acked"] + after["stats"]["released"]
