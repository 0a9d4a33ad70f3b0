from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW, RUNG, SERVER_TIME, stamped

MINUTE = 60_000


def test_new_id_is_sent_and_reserved(queue):
    assert queue.send_unique([("a", "+5000", b"{}", MINUTE)]) == [NOW + 5000]
    assert queue.redis.pttl(queue.keys.unique("a")) in range(MINUTE - 10_000, MINUTE + 1)
    assert queue.state() == {
        "pending": {"a": NOW + 5000},
        "messages": {"a": stamped("{}")},
        "unique:a": str(NOW + MINUTE),
        "stats": {"sent": 1},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_existing_id_is_neither_sent_nor_reserved(queue, state):
    queue.given(**{state: {"a": NOW}})
    for messages in ({}, {"a": "old"}):
        queue.given(messages=messages)
        before = queue.state()
        assert queue.send_unique([("a", "+0", b"{}", MINUTE)]) == [-1]
        assert queue.state() == before


def test_payload_without_a_message_is_overwritten(queue):
    queue.given(messages={"a": "left by a refused send"})
    assert queue.send_unique([("a", "+0", b"{}", MINUTE)]) == [NOW]
    assert queue.state()["messages"] == {"a": stamped("{}")}


def test_id_in_garbage_is_sent_as_new(queue):
    queue.given(garbage={"a": NOW - 1}, messages={"a": "old"})
    assert queue.send_unique([("a", "+5", b"new", MINUTE)]) == [NOW + 5]
    state = queue.state()
    assert "garbage" not in state
    assert (state["pending"], state["messages"]) == ({"a": NOW + 5}, {"a": stamped("new")})


def test_garbage_with_a_reserved_id_stays_garbage_when_another_id_is_sent(queue):
    queue.send_unique([("a", "+5", b"old", MINUTE)])
    queue.cancel("a")
    assert queue.send_unique([("a", "+5", b"new", MINUTE), ("b", "+5", b"{}", MINUTE)]) == [-1, NOW + 5]
    assert queue.state()["garbage"] == {"a": NOW}


def test_live_message_also_in_garbage_exists_and_keeps_its_payload(queue):
    queue.given(pending={"a": NOW + 9}, garbage={"a": NOW - 1}, messages={"a": "old"}, stats={"sent": 1})
    assert queue.send_unique([("a", "+5", b"new", MINUTE)]) == [-1]
    state = queue.state()
    assert (state["pending"], state["messages"]) == ({"a": NOW + 9}, {"a": "old"})
    assert "garbage" not in state


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("later", "free"), [(0, False), (MINUTE - 1, False), (MINUTE, True), (MINUTE + 1, True)])
def test_reservation_outlasts_the_ack_and_ends_on_time(queue, later, free):
    queue.send_unique([("a", "+0", b"{}", MINUTE)])
    queue.ack([("a", queue.deliver("a"))])
    queue.now = NOW + later
    assert queue.send_unique([("a", "+0", b"{}", MINUTE)]) == [NOW + later if free else -1]
    assert queue.state()["unique:a"] == str(NOW + MINUTE + (later if free else 0))
    assert queue.state()["stats"]["sent"] == 1 + free


def test_part_of_a_millisecond_is_rounded_up(queue):
    queue.now = NOW + 0.25
    queue.send_unique([("a", "+0", b"{}", MINUTE)])
    assert queue.state()["unique:a"] == str(NOW + MINUTE + 1)


def test_other_sends_ignore_the_reservation(queue):
    queue.send_unique([("a", "+0", b"{}", MINUTE)])
    queue.ack([("a", queue.deliver("a"))])
    assert queue.send([("a", "+0", b"{}")]) == [NOW]


def test_value_that_is_not_a_time_reserves_nothing(queue):
    """Another program has overwritten it."""
    queue.redis.set(queue.keys.unique("a"), "for ever")
    assert queue.send_unique([("a", "+0", b"{}", MINUTE)]) == [NOW]


def test_reservation_key_expires_by_the_servers_clock(queue):
    queue.now = SERVER_TIME
    queue.send_unique([("a", "+0", b"{}", MINUTE)])
    ends = int(queue.state()["unique:a"])
    before = queue.server_ms()
    left = queue.redis.pttl(queue.keys.unique("a"))
    assert before + left - 2 <= ends <= queue.server_ms() + left + 2


def test_bell_rings_for_a_new_earliest_message(queue):
    queue.given(pending={"p": NOW + 10})
    queue.send_unique([("a", "+10", b"{}", MINUTE)])
    assert "bell" not in queue.state()
    queue.send_unique([("b", "+9", b"{}", MINUTE)])
    assert queue.state()["bell"] == RUNG


def test_new_messages_are_sent_and_existing_ones_are_unchanged(queue):
    queue.send_unique([("reserved", "+0", b"{}", MINUTE)])
    queue.ack([("reserved", queue.deliver("reserved"))])
    queue.given(retry={"there": NOW + 7}, messages={"there": "old", "garbage": "old"}, garbage={"garbage": NOW - 1})
    wanted = ["there", "first", "reserved", "garbage", "last"]
    due = queue.send_unique([(id, f"+{number}", id.encode(), MINUTE + number) for number, id in enumerate(wanted)])
    assert due == [-1, NOW + 1, -1, NOW + 3, NOW + 4]
    state = queue.state()
    assert state["pending"] == {"first": NOW + 1, "garbage": NOW + 3, "last": NOW + 4}
    assert state["messages"] == {"there": "old"} | {id: stamped(id) for id in ("first", "garbage", "last")}
    assert "garbage" not in state
    reserved = {name.removeprefix("unique:"): until for name, until in state.items() if name.startswith("unique:")}
    assert reserved == {"reserved": str(NOW + MINUTE)} | {
        id: str(NOW + MINUTE + number) for number, id in ((1, "first"), (3, "garbage"), (4, "last"))
    }
    assert state["stats"]["sent"] == 4


def test_each_reservation_lasts_as_long_as_requested(queue):
    for id, unique_ms in (("short", 10), ("long", MINUTE)):
        queue.send_unique([(id, "+0", b"{}", unique_ms)])
        queue.ack([(id, queue.deliver(id))])
    queue.now = NOW + 10
    assert queue.send_unique([("short", "+0", b"{}", 10), ("long", "+0", b"{}", 10)]) == [NOW + 10, -1]
