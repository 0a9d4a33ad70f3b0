"""A server that has reached its maxmemory takes no new messages, but everything that frees memory still works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from delayq.errors import ServerOutOfMemory, StaleReceipt
from tests.harness.lua.every import CALLS, state_for
from tests.harness.lua.raw import FRESH, LEASE, NOW, RawQueue

REFUSED = {
    "enqueue_occurrence",
    "ack_then",
    "reconcile_stats",
    "edit",
    "open_queue",
    "repair",
    "replace",
}  # nothing waits for these
REFUSED |= {"restore", "sample", "send", "send_group", "send_one", "send_unique"}


@pytest.fixture(params=[{}, {"events": 1000}], ids=["", "ledger"])
def full(queue: RawQueue, request: pytest.FixtureRequest) -> Iterator[RawQueue]:
    """A queue that holds the state of `CALLS`, perhaps with a ledger, on a server that takes nothing more."""
    queue.given(**state_for("resume"))
    queue.given(meta=request.param)
    queue.redis.hdel(queue.keys.meta, "paused")
    queue.redis.config_set("maxmemory", 1)
    yield queue
    queue.redis.config_set("maxmemory", 0)


@pytest.mark.parametrize("script", sorted(CALLS.keys() - REFUSED))
def test_scripts_of_consumers_still_work(full, script):
    full.run(CALLS[script](full.scripts))
    with suppress(StaleReceipt):  # it was settled by the first call
        full.run(CALLS[script](full.scripts))  # again, as after a lost reply


@pytest.mark.parametrize("messages", [["new"], ["new", "g"], ["g"]])
def test_refused_message_leaves_no_trace(full, messages):
    before = full.state()
    try:
        full.send([(message_id, "+0", b"{}") for message_id in messages])
    except ServerOutOfMemory:
        assert full.state() == before
    else:
        assert all(message_id in full.state()["pending"] for message_id in messages)


@pytest.mark.parametrize("named", [True, False])
def test_new_message_is_refused(full, named):
    before = full.state()
    with pytest.raises(ServerOutOfMemory):
        full.send([("new", "+0", b"{}"), ("p", "+0", b"{}")], named)
    assert full.state() == before


def test_single_message_is_refused(full):
    before = full.state()
    with pytest.raises(ServerOutOfMemory):
        full.send_one("new", "+0", b"{}")
    assert full.state() == before


@pytest.mark.parametrize("message_id", ["new", "p", "u", "d", "g"])
def test_replacement_is_refused(full, message_id):
    before = full.state()
    with pytest.raises(ServerOutOfMemory):
        full.replace(message_id, "+0", b"{}")
    assert full.state() == before


def test_edit_is_refused(full):
    before = full.state()
    with pytest.raises(ServerOutOfMemory):
        full.edit("d", NOW, "+0", b"new")
    assert full.state() == before


def test_gap_in_the_looks_for_ended_leases_is_noted(full):
    full.unack_to_retry(is_consumer=True)
    full.now = NOW + LEASE
    full.unack_to_retry(is_consumer=True)
    assert full.state()["watch"]["looked"] == f"{NOW + LEASE} {NOW} {NOW + LEASE + 6000}"
    assert list(full.state()["unack"]) == ["u"]


@pytest.mark.parametrize("message_id", ["p", "r1", "t", "d"])
def test_waiting_message_is_cancelled(full, message_id):
    assert full.cancel(message_id) == "cancelled"


def test_running_message_is_cancelled(full):
    assert full.cancel("u") == "in_flight"
    assert full.state()["cancelled"] == {"u", "withdrawn"}


def test_pause_begins_changes_its_end_and_ends(full):
    assert full.pause() == 1
    assert full.pause(9000) == 0
    assert full.state()["meta"]["paused_until"] == str(NOW + 9000)
    assert full.resume() == 1


def test_claim_without_room_still_works(full):
    assert full.ready_to_unack(0, LEASE).ids == []


def test_queue_can_be_drained(full):
    handled = set()
    for _ in range(8):
        full.redis.delete(full.keys.bell)  # as a consumer does when it takes the token
        full.pending_to_ready(1)
        full.unack_to_retry(1)
        claimed = full.ready_to_unack(1, LEASE)
        for message_id, earlier in zip(claimed.ids, claimed.deliveries, strict=True):
            assert full.ack([(message_id, f"{earlier or FRESH}-0")]) == [1]
            handled.add(message_id)
    assert handled == {"p", "r1", "r2", "lost", "t"}
    assert full.state()["pending"] == {"q": NOW + 10}


@pytest.mark.parametrize("count", [3, 16, 17, 200])
def test_claim_of_any_size_works_and_adds_nothing_else_to_unack(full, count):
    full.redis.config_set("maxmemory", 0)
    ready = {f"m{i:03}": NOW - count + i for i in range(count)}
    full.redis.delete(full.keys.ready, full.keys.retry, full.keys.unack)
    full.given(ready=ready)
    full.redis.config_set("maxmemory", 1)
    claimed = full.ready_to_unack(500, LEASE)
    assert claimed.ids == list(ready)
    assert full.state()["unack"] == dict.fromkeys(ready, NOW + LEASE)
    assert full.ack([(message_id, f"{FRESH}-0") for message_id in ready]) == [1] * count
    assert "unack" not in full.state()


@pytest.mark.parametrize("ready", [{}, {"r": NOW}], ids=["empty", "not-empty"])
@pytest.mark.parametrize("count", [1, 200])
def test_promotion_works_whether_or_not_ready_is_empty(full, ready, count):
    full.redis.config_set("maxmemory", 0)
    full.redis.delete(full.keys.ready, full.keys.pending)
    full.given(ready=ready, pending={f"m{i}": NOW - i for i in range(count)} | {"later": NOW + 1})
    full.redis.config_set("maxmemory", 1)
    assert full.pending_to_ready() == count
    after = full.state()
    assert after["ready"] == ready | {f"m{i}": NOW - i for i in range(count)}
    assert after["pending"] == {"later": NOW + 1}


@pytest.mark.parametrize("named", [True, False])
def test_hundreds_of_messages_are_refused_as_a_whole(full, named):
    before = full.state()
    with pytest.raises(ServerOutOfMemory):
        full.send([(f"m{i}", f"+{i}", b"{}") for i in range(500)], named)
    assert full.state() == before


@pytest.mark.parametrize("message_id", ["new", "p", "u", "g"])
def test_ack_with_followers_is_refused_as_a_whole(full, message_id):
    before = full.state()
    with pytest.raises(ServerOutOfMemory):
        full.ack_then("u", "1.0.0.0-0", [(message_id, "+0", b"{}", "replace")])
    assert full.state() == before
