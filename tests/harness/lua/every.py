"""A call of every script, and a state where each has something to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.model.backup import ExpectedMessage, KeptMessage
from delayq.protocol.command import Command
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.replies import KeyedDelivery
from tests.harness.lua.raw import LEASE, NOW

STATE: dict[str, Any] = {
    "pending": {"p": NOW, "q": NOW + 10},
    "ready": {"r1": NOW, "r2": NOW},
    "unack": {"u": NOW + LEASE, "lost": NOW - 1, "withdrawn": NOW - 1},
    "retry": {"t": NOW},
    "dead": {"d": NOW},
    "garbage": {"g": NOW},
    "attempts": {"u": "1.0.0.0", "withdrawn": "1.0.0.0", "t": "1.0.0.0", "d": "4.0.0.0"},
    "errors": {"u": "E", "withdrawn": "E", "t": "E", "d": "E"},
    "reasons": {"d": "exhausted"},
    "cancelled": {"withdrawn"},
    "messages": dict.fromkeys(["p", "q", "r1", "r2", "u", "lost", "withdrawn", "t", "d", "g", "stray", "then"], "{}"),
    "stats": {"sent": 11},
    "schedules": {"nightly": "{}"},
    "armed": {"nightly": NOW},
    "meta": {"needs": "5 0.1.0"},
    "held": {"then": NOW - 9},
    "members": {"u": "team"},
    "groups": {"team": f"w 2 1 0 {NOW - 9} 0 +5 then"},
    "rosters": {"team": "u\ngone"},
}

HELD = ("u", "1.0.0.0-0")
KEPT = (60_000, "token", "done", NOW, 2, "me", "3")

CALLS: dict[str, Callable[[QueueCommands], Command[Any]]] = {
    "ack": lambda scripts: scripts.ack([HELD]),
    "ack_result": lambda scripts: scripts.ack_result([(*HELD, KEPT)]),
    "acquire_slot": lambda scripts: scripts.acquire_slot(
        [KeyedDelivery("k", "lost", "0.0.0.0-0", NOW), KeyedDelivery("l", *HELD, NOW)], 60_000, NOW * 1000
    ),
    "heartbeat": lambda scripts: scripts.heartbeat("me", b"{}", {"took:0": 3, "task:acked:welcome": 1}),
    "enqueue_occurrence": lambda scripts: scripts.enqueue_occurrence("nightly", NOW, "p", b"{}", NOW + 1, "p2", b"{}"),
    "ack_then": lambda scripts: scripts.ack_then(
        *HELD, [("new", NOW - 1, b"{}", "new"), ("g", "+0", b"{}", "error"), ("t", "+0", b"{}", "replace")]
    ),
    "reconcile_stats": lambda scripts: scripts.reconcile_stats(),
    "bury": lambda scripts: scripts.bury("t", "unwanted"),
    "cancel": lambda scripts: scripts.cancel("t"),
    "consumers": lambda scripts: scripts.consumers(),
    "configure": lambda scripts: scripts.configure({"rate": 5, "period_ms": 1000, "per_key": None}),
    "delete_payloads": lambda scripts: scripts.delete_payloads(["g"]),
    "remove_if_unchanged": lambda scripts: scripts.remove_if_unchanged(
        "dead", [ExpectedMessage("d", NOW, "{}"), ExpectedMessage("gone", NOW, "")]
    ),
    "remove_queue": lambda scripts: scripts.remove_queue(),
    "edit": lambda scripts: scripts.edit("d", NOW, NOW - 1, b"{}"),
    "expire": lambda scripts: scripts.expire(*HELD),
    "extend": lambda scripts: scripts.extend(*HELD, 2 * LEASE),
    "fitting": lambda scripts: scripts.fitting(["p", "gone", "q"], 3),
    "get": lambda scripts: scripts.get("u"),
    "release_slot": lambda scripts: scripts.release_slot([KeyedDelivery("k", "x", "0.0.0.0-1")]),
    "give_up_place": lambda scripts: scripts.give_up_place("u", "1.0.0.0-0"),
    "held_keys": lambda scripts: scripts.held_keys(scripts.keys.waiting, "", 9),
    "history": lambda scripts: scripts.history("u"),
    "ledger_extent": lambda scripts: scripts.ledger_extent(""),
    "deregister": lambda scripts: scripts.deregister("me", {"took:0": 3, "task:acked:welcome": 1}),
    "nack": lambda scripts: scripts.nack(*HELD, 0, "E"),
    "open_queue": lambda scripts: scripts.open_queue(1, create=True),
    "progress": lambda scripts: scripts.progress(*HELD, b"[1]"),
    "pause": lambda scripts: scripts.pause(9000),
    "pending_to_ready": lambda scripts: scripts.pending_to_ready(),
    "purge": lambda scripts: scripts.purge("dead"),
    "ready_to_unack": lambda scripts: scripts.ready_to_unack(2, LEASE, "me", f"{1:032}"),
    "reject": lambda scripts: scripts.reject(*HELD, "unwanted", "E"),
    "release": lambda scripts: scripts.release(*HELD, NOW, NOW * 1000),
    "repair": lambda scripts: scripts.repair("stray", 2 * NOW, LEASE),
    "replace": lambda scripts: scripts.replace("u", "+0", b"{}"),
    "requeue": lambda scripts: scripts.requeue(["d"], NOW - 1),
    "reschedule": lambda scripts: scripts.reschedule("t", NOW - 1),
    "plan_sleep": lambda scripts: scripts.plan_sleep("me", 60_000),
    "restore": lambda scripts: scripts.restore(
        "retry",
        [
            KeptMessage("new", NOW - 1, b"{}", "1.0.0.0", "E"),
            KeptMessage("g", NOW, b"{}"),
            KeptMessage("p", NOW, b"{}"),
        ],
    ),
    "results": lambda scripts: scripts.results([("p", ""), ("u", "token"), ("gone", "")]),
    "resume": lambda scripts: scripts.resume(),
    "ring": lambda scripts: scripts.ring(),
    "send_group": lambda scripts: scripts.send_group(
        "new", "w", [("last", "+9", b"{}"), ("m", "+0", b"{}"), ("g", str(NOW - 1), b"{}")], waits=True
    ),
    "group": lambda scripts: scripts.group("team"),
    "cancel_group": lambda scripts: scripts.cancel_group("team"),
    "sweep_groups": lambda scripts: scripts.sweep_groups(),
    "mend_groups": lambda scripts: scripts.mend_groups(),
    "sample": lambda scripts: scripts.sample(["sent", "acked"]),
    "send": lambda scripts: scripts.send([("new", str(NOW - 1), b"{}"), ("g", "+0", b"{}"), ("p", "+0", b"{}")]),
    "send_one": lambda scripts: scripts.send_one("new", "+0", b"{}"),
    "send_unique": lambda scripts: scripts.send_unique([("new", NOW - 1, b"{}", 60_000)]),
    "stats": lambda scripts: scripts.stats(),
    "unack_to_retry": lambda scripts: scripts.unack_to_retry(),
    "upcoming": lambda scripts: scripts.upcoming(10, 3),
    "poll_idle": lambda scripts: scripts.poll_idle("me", 60_000),
    "usage": lambda scripts: scripts.usage(5000),
    "why": lambda scripts: scripts.why("p"),
}

KEYED: dict[str, Any] = {  # two messages of key k run, one has ended and one is gone, and p waits
    "slots": {"k\00.0.0.0-1\0x": 0, "k\00.0.0.0-0\0u": 0},
    "waiting": {f"k\0{NOW - 9:015}\0p": 0},
    "parked": {"p": f"{NOW} {NOW - 9}"},
    "meta": STATE["meta"] | {"per_key": 1},
}

READ_ONLY = {
    "consumers",
    "fitting",
    "get",
    "group",
    "held_keys",
    "history",
    "ledger_extent",
    "results",
    "stats",
    "upcoming",
    "usage",
    "why",
}

each_script = pytest.mark.parametrize("script", CALLS)


def state_for(script: str) -> dict[str, Any]:
    """The state; for some scripts, that of a queue that is paused, idle, empty or has a limit per key."""
    if script in {"acquire_slot", "release_slot", "held_keys", "usage", "why"}:
        return STATE | KEYED
    if script == "give_up_place":
        return STATE | {"replaced": {"1.0.0.0-0\0u": NOW + LEASE}}
    if script == "remove_queue":
        return {"stats": {"sent": 1, "acked": 1}, "schedules": {"nightly": "{}"}}
    if script in {"plan_sleep", "poll_idle"}:
        return {"pending": {"q": NOW + 10}, "messages": {"q": "{}"}}
    return STATE | ({"meta": {"paused": NOW}} if script == "resume" else {})
