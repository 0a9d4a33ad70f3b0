"""The ledger: when a queue keeps one, each script that moves messages appends an entry for each of them."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.errors import ServerError
from delayq.protocol.replies import KeyedDelivery
from tests.harness.lua.every import CALLS, HELD, READ_ONLY, state_for
from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME, RawQueue

FIELDS = ["id", "event", "at", "attempt", "due", "late", "consumer", "reason"]

Entry = tuple[str, str, str, str, str, str, str]
"""An entry without its time: id, event, attempt, due, late, consumer, reason; times are relative to NOW."""

NOTED: dict[str, list[Entry]] = {
    "ack": [("u", "acked", "2", "", "", "", "")],
    "ack_result": [("u", "acked", "2", "", "", "", "")],
    "acquire_slot": [("l", "held_back", "1", "+0", "", "", "its key has no room")],
    "enqueue_occurrence": [
        ("p", "cancelled", "", "", "", "", "its schedule has changed"),
        ("p2", "sent", "", "+1", "", "", ""),
    ],
    "ack_then": [
        ("u", "acked", "2", "", "", "", ""),
        ("new", "sent", "", "-1", "", "", "follows u"),
        ("g", "sent", "", "+0", "", "", "follows u"),
        ("t", "replaced", "", "+0", "", "", "follows u"),
    ],
    "heartbeat": [],
    "reconcile_stats": [],
    "bury": [("t", "died", "", "", "", "", "unwanted")],
    "cancel": [("t", "cancelled", "", "", "", "", "")],
    "delete_payloads": [],
    "configure": [],
    "remove_if_unchanged": [("d", "purged", "", "", "", "", "drained")],
    "remove_queue": [],
    "edit": [("d", "requeued", "", "-1", "", "", "edited")],
    "expire": [("u", "expired", "2", "", "", "", "")],
    "extend": [],
    "progress": [],
    "release_slot": [("p", "promoted", "", "-9", "9", "", "its key has room")],
    "deregister": [],
    "nack": [("u", "nacked", "2", "+0", "", "", "E")],
    "open_queue": [],
    "pause": [],
    "pending_to_ready": [("p", "promoted", "", "+0", "0", "", "")],
    "purge": [("d", "purged", "", "", "", "", "")],
    "ready_to_unack": [("t", "delivered", "2", "+0", "0", "me", ""), ("r1", "delivered", "1", "+0", "0", "me", "")],
    "reject": [("u", "died", "2", "", "", "", "unwanted: E")],
    "release": [("u", "released", "2", "+0", "", "", "")],
    "repair": [
        ("stray", "died", "", "", "", "", "orphan"),
        ("stray", "repaired", "", "", "", "", "moved to the dead letters: orphan"),
    ],
    "replace": [("u", "replaced", "", "+0", "", "", "")],
    "requeue": [("d", "requeued", "", "-1", "", "", "")],
    "reschedule": [("t", "rescheduled", "", "-1", "", "", "")],
    "plan_sleep": [],
    "restore": [("new", "sent", "", "-1", "", "", "restored"), ("g", "sent", "", "+0", "", "", "restored")],
    "resume": [],
    "ring": [],
    "sample": [],
    "send": [("new", "sent", "", "-1", "", "", ""), ("g", "sent", "", "+0", "", "", "")],
    "send_one": [("new", "sent", "", "+0", "", "", "")],
    "send_unique": [("new", "sent", "", "-1", "", "", "")],
    "unack_to_retry": [
        ("lost", "lease_lost", "1", "-1", "", "", ""),
        ("withdrawn", "lease_lost", "2", "-1", "", "", ""),
        ("withdrawn", "cancelled", "", "", "", "", ""),
    ],
    "poll_idle": [],
    "send_group": [
        ("last", "sent", "", "", "", "", "of group new"),
        ("m", "sent", "", "+0", "", "", "of group new"),
        ("g", "sent", "", "-1", "", "", "of group new"),
    ],
    "cancel_group": [("then", "cancelled", "", "", "", "", "")],
    "mend_groups": [],
    "sweep_groups": [],
    "give_up_place": [],
}
MOVES = sorted(name for name, entries in NOTED.items() if entries)


def call(queue: RawQueue, script: str) -> Any:
    if script == "ready_to_unack":
        return queue.scripts.ready_to_unack(2, LEASE, "me")
    if script == "acquire_slot":  # there is room for the first one
        return queue.scripts.acquire_slot(
            [KeyedDelivery("k", each, "0.0.0.0-0", NOW) for each in ("lost", "l")], 60_000
        )
    return CALLS[script](queue.scripts)


def given(queue: RawQueue, script: str, **meta: Any) -> None:
    state = state_for(script)
    state = state | {"unack": state.get("unack", {}) | {"l": NOW + LEASE}} if script == "acquire_slot" else state
    queue.given(**state | {"meta": state.get("meta", {}) | meta})


def noted(queue: RawQueue) -> list[Entry]:
    """The entries, after a check of their fields and times."""
    found: list[Entry] = []
    for _, values in queue.redis.xrange(queue.keys.events):
        assert list(values) == FIELDS
        message_id, event, at, attempt, due, *others = values.values()
        assert at == str(NOW)
        found.append((message_id, event, attempt, due and f"{int(due) - NOW:+}", *others))
    return found


def without_events(state: dict[str, Any]) -> dict[str, Any]:
    """The state without the ledger; the ids of results in `finished` are times of the server."""
    found = {name: held for name, held in state.items() if name not in {"events", "meta"}}
    return found | ({"finished": [fields for _, fields in found["finished"]]} if "finished" in found else {})


def test_every_script_that_writes_is_tested_here():
    assert set(NOTED) == CALLS.keys() - READ_ONLY


@pytest.mark.parametrize("script", NOTED)
def test_each_message_that_moves_gets_an_entry(queue, script):
    given(queue, script, events=1000)
    queue.run(call(queue, script))
    assert noted(queue) == NOTED[script]


@pytest.mark.parametrize("script", NOTED)
def test_without_a_ledger_only_the_entries_are_missing(queue, script):
    given(queue, script, events=1000)
    queue.run(call(queue, script))
    expected = without_events(queue.state())
    queue.redis.flushall()
    given(queue, script)
    queue.run(call(queue, script))
    assert "events" not in queue.state()
    assert without_events(queue.state()) == expected


@pytest.mark.parametrize("script", MOVES)
def test_overwritten_ledger_makes_scripts_change_nothing(queue, script, subtests):
    for key in ["meta", "events"]:
        queue.clear()
        with subtests.test(key=key):
            given(queue, script, events=1000)
            queue.redis.delete(getattr(queue.keys, key))
            queue.redis.set(getattr(queue.keys, key), "nothing of delayq")
            before = {name: queue.redis.dump(name) for name in queue.redis.scan_iter()}
            with pytest.raises(ServerError, match="WRONGTYPE"):
                queue.run(call(queue, script))
            assert {name: queue.redis.dump(name) for name in queue.redis.scan_iter()} == before


@pytest.mark.parametrize("script", MOVES)
def test_scripts_work_even_if_redis_refuses_the_entry(queue, script):
    """As when the stream has used up its last id."""
    given(queue, script, events=1000)
    queue.run(call(queue, script))
    expected = without_events(queue.state())
    queue.redis.flushall()
    given(queue, script, events=1000)
    queue.redis.xadd(queue.keys.events, {"a": "b"}, id=f"{2**64 - 1}-{2**64 - 1}")
    queue.run(call(queue, script))
    assert without_events(queue.state()) == expected
    assert queue.redis.xlen(queue.keys.events) == 1


def test_ledger_keeps_about_the_configured_number_of_entries(queue):
    queue.given(meta={"events": 200})
    for n in range(1000):
        queue.send([(f"m{n}", "+0", b"{}")])
    kept = queue.redis.xlen(queue.keys.events)
    assert 200 <= kept <= 300
    last = queue.redis.xrevrange(queue.keys.events, count=1)[0][1]
    assert last["id"] == "m999"


def test_stale_receipts_are_recognised_with_a_ledger(queue):
    queue.given(meta={"events": 1000})
    queue.send([("a", "+0", b"{}")])
    receipt = queue.deliver("a")
    assert queue.ack([("a", "0.0.0.0-999"), ("a", receipt)]) == [0, 1]
    assert [entry[:3] for entry in noted(queue)][-1] == ("a", "acked", "1")


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("error", "expected"),
    [("", "no price"), ("Reject: no price", "Reject: no price"), ("ValueError: no", "no price: ValueError: no")],
)
def test_reason_of_a_death_is_recorded_once(queue, error, expected):
    given(queue, "reject", events=1000)
    queue.run(queue.scripts.reject(*HELD, "no price", error))
    assert [entry[-1] for entry in noted(queue)] == [expected]


def test_entries_have_the_server_time(queue):
    queue.given(meta={"events": 1000})
    queue.now = SERVER_TIME
    queue.send([("a", "+0", b"{}")])
    ((entry, fields),) = queue.redis.xrange(queue.keys.events)
    assert 0 < int(fields["at"]) <= int(entry.partition("-")[0])
