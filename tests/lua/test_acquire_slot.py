from __future__ import annotations

import pytest

from delayq.protocol.replies import KeyedDelivery
from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME

NET = 60_000
BEGINS, WAITS, GONE = NOW - 5, -1, -2
RECEIPT = "0.0.0.0-0"


def slot(key: str, message_id: str, receipt: str = RECEIPT) -> str:
    return f"{key}\0{receipt}\0{message_id}"


def place(key: str, message_id: str, due: int = NOW - 5) -> str:
    return f"{key}\0{due:015}\0{message_id}"


def keyed(key: str, *ids: str, due: int = NOW - 5) -> list[KeyedDelivery]:
    return [KeyedDelivery(key, message_id, RECEIPT, due) for message_id in ids]


@pytest.fixture
def limited(queue):
    queue.given(meta={"per_key": 2}, unack=dict.fromkeys("abcde", NOW + LEASE))
    return queue


def test_without_a_limit_reply_is_empty_and_nothing_changes(queue):
    queue.given(unack={"a": NOW + LEASE})
    before = queue.state()
    assert queue.acquire_slot(keyed("k", "a"), NET) == []
    assert queue.state() == before


def test_deliveries_of_a_key_begin_up_to_the_limit_and_the_others_wait(limited):
    assert limited.acquire_slot(keyed("k", *"abc"), NET) == [BEGINS, BEGINS, WAITS]
    assert limited.state() == {
        "meta": {"per_key": "2"},
        "unack": dict.fromkeys("abde", NOW + LEASE),
        "pending": {"c": NOW + NET},
        "attempts": {"c": "0.1.0.0"},
        "slots": {slot("k", "a"): 0, slot("k", "b"): 0},
        "waiting": {place("k", "c"): 0},
        "parked": {"c": f"{NOW + NET} {NOW - 5}"},
        "stats": {"released": 1, "held_back": 1},
    }


def test_waiting_messages_come_back_one_after_the_other_within_and_across_calls(limited):
    limited.acquire_slot(keyed("k", *"abcd"), NET)
    limited.acquire_slot(keyed("k", "e"), NET)
    assert limited.state()["pending"] == {"c": NOW + NET, "d": NOW + NET + 10, "e": NOW + NET + 20}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("others", [("k", "kk"), ("kk", "k"), ("k", "k\x01"), ("k\x01", "k"), ("k", "k\U0010ffff")])
def test_keys_with_a_common_prefix_are_counted_separately(limited, others):
    full, free = others
    assert limited.acquire_slot(keyed(full, *"abc"), NET) == [BEGINS, BEGINS, WAITS]
    assert limited.acquire_slot(keyed(free, *"de"), NET) == [BEGINS, BEGINS]


def test_repeated_call_gives_the_same_answer(limited):
    first = limited.acquire_slot(keyed("k", *"abc"), NET)
    before = limited.state()
    assert limited.acquire_slot(keyed("k", *"abc"), NET) == [*first[:2], GONE]
    assert limited.state() == before


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    queue.given(meta={"per_key": 2})
    before = queue.state()
    assert queue.acquire_slot([KeyedDelivery("k", "a", stale, NOW)], NET) == [GONE]
    assert queue.state() == before


def test_slots_of_lost_deliveries_are_freed_at_the_limit(limited):
    limited.given(slots={slot("k", "lost"): 0, slot("k", "a", "3.0.0.0-0"): 0, slot("other", "lost"): 0})
    assert limited.acquire_slot(keyed("k", *"abc"), NET) == [BEGINS, BEGINS, WAITS]
    assert limited.state()["slots"] == {slot("k", "a"): 0, slot("k", "b"): 0, slot("other", "lost"): 0}


def test_slot_reserved_for_a_message_counts_until_it_begins(limited):
    limited.given(ready={"next": NOW}, slots={slot("k", "next", ""): 0, slot("k", "a"): 0})
    assert limited.acquire_slot(keyed("k", "b"), NET) == [WAITS]
    limited.redis.zrem(limited.keys.ready, "next")
    limited.given(unack={"next": NOW + LEASE})
    assert limited.acquire_slot(keyed("k", *"cd"), NET) == [WAITS, WAITS]
    assert limited.acquire_slot(keyed("k", "next"), NET) == [BEGINS]
    assert limited.state()["slots"] == {slot("k", "next"): 0, slot("k", "a"): 0}


def test_slot_reserved_for_a_deleted_message_is_freed(limited):
    limited.given(slots={slot("k", "cancelled", ""): 0, slot("k", "a"): 0})
    assert limited.acquire_slot(keyed("k", "b"), NET) == [BEGINS]


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("begins", [True, False])
def test_parked_message_that_came_due_keeps_its_original_due_time(limited, begins):
    due = NOW - 70_000
    parked = {"a": f"{NOW - 5} {due}"}
    limited.given(parked=parked, waiting={place("k", "a", due): 0})
    limited.given(slots={} if begins else {slot("k", "d"): 0, slot("k", "e"): 0})
    assert limited.acquire_slot(keyed("k", "a"), NET) == [due if begins else WAITS]
    after = limited.state()
    assert after.get("parked") == (None if begins else {"a": f"{NOW + NET + 10} {due}"})
    if not begins:
        assert after["waiting"] == {place("k", "a", due): 0}


def test_message_rescheduled_while_parked_has_its_new_due_time(limited):
    limited.given(parked={"a": f"{NOW - 60_000} {NOW - 90_000}"})
    assert limited.acquire_slot(keyed("k", "a"), NET) == [BEGINS]


def test_message_cancelled_in_flight_does_not_wait(limited):
    limited.given(cancelled={"c"}, errors={"c": "old"})
    assert limited.acquire_slot(keyed("k", *"abc"), NET) == [BEGINS, BEGINS, WAITS]
    after = limited.state()
    assert after["garbage"] == {"c": NOW}
    assert after["stats"] == {"released": 1, "held_back": 1, "cancelled": 1}
    assert not {"pending", "waiting", "parked", "cancelled", "errors", "attempts"} & set(after)


def test_lowered_limit_lets_nothing_begin_until_enough_have_ended(limited):
    limited.acquire_slot(keyed("k", *"ab"), NET)
    limited.redis.hset(limited.keys.meta, "per_key", 1)
    assert limited.acquire_slot(keyed("k", "c"), NET) == [WAITS]
    limited.ack([("a", RECEIPT)])
    assert limited.acquire_slot(keyed("k", "d"), NET) == [WAITS]
    limited.ack([("b", RECEIPT)])
    assert limited.acquire_slot(keyed("k", "e"), NET) == [BEGINS]


def test_waiting_and_parked_expire_after_the_last_message_in_them(limited):
    limited.acquire_slot(keyed("k", *"abc"), NET)
    for key in (limited.keys.waiting, limited.keys.parked):
        assert NET < limited.redis.pttl(key) <= 2 * NET
    assert limited.redis.pttl(limited.keys.slots) == -1


def test_more_waiting_messages_make_each_come_due_and_expire_later(limited):
    limited.given(waiting={place("other", f"m{number}"): 0 for number in range(1000)}, parked={"m0": "1 1"})
    limited.acquire_slot(keyed("k", *"abc"), NET)
    assert limited.state()["pending"] == {"c": NOW + NET + 10_000}
    limited.redis.delete(limited.keys.waiting)
    limited.redis.zadd(limited.keys.waiting, {place("other", "m0"): 0})
    limited.redis.pexpire(limited.keys.waiting, 10 * NET)
    limited.acquire_slot(keyed("k", "d"), NET)
    assert limited.state()["pending"]["d"] == NOW + NET + 10
    for key, least in ((limited.keys.waiting, 9 * NET), (limited.keys.parked, 2 * NET + 1000)):
        assert limited.redis.pttl(key) > least


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("limit", [1, 1000])
def test_slots_are_counted_correctly_for_hundreds_of_messages(queue, limit):
    ids = [f"m{number}" for number in range(250)]
    queue.given(meta={"per_key": limit}, unack=dict.fromkeys(ids, NOW + LEASE))
    queue.given(slots={slot("k", f"lost{number}"): 0 for number in range(limit)})
    verdicts = [queue.acquire_slot(keyed("k", message_id), NET)[0] for message_id in ids]
    assert verdicts == ([BEGINS] + [WAITS] * 249 if limit == 1 else [BEGINS] * 250)


def test_server_time_is_the_default(limited):
    limited.now = SERVER_TIME
    before = limited.server_ms()
    limited.acquire_slot(keyed("k", *"abc"), NET)
    assert before + NET <= limited.state()["pending"]["c"] <= limited.server_ms() + NET
