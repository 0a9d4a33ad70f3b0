"""A call of every script, and a state in which each of them has something to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.calls import Call
from delayq.scripts import Kept, Keyed, Scripts, Seen
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
    "messages": dict.fromkeys(["p", "q", "r1", "r2", "u", "lost", "withdrawn", "t", "d", "g", "stray"], "{}"),
    "stats": {"sent": 10},
    "schedules": {"nightly": "{}"},
    "armed": {"nightly": NOW},
}

HELD = ("u", "1.0.0.0-0")

CALLS: dict[str, Callable[[Scripts], Call[Any]]] = {
    "ack": lambda scripts: scripts.ack([HELD]),
    "admit": lambda scripts: scripts.admit(
        [Keyed("k", "lost", "0.0.0.0-0", NOW), Keyed("l", *HELD, NOW)], 60_000, NOW * 1000
    ),
    "appear": lambda scripts: scripts.appear("me", b"{}", {0: 3, 5: 1}),
    "arm": lambda scripts: scripts.arm("nightly", NOW, "p", b"{}", NOW + 1, "p2", b"{}"),
    "ack_then": lambda scripts: scripts.ack_then(
        *HELD, [("new", NOW - 1, b"{}", "new"), ("g", "+0", b"{}", "error"), ("t", "+0", b"{}", "replace")]
    ),
    "balance": lambda scripts: scripts.balance(),
    "cancel": lambda scripts: scripts.cancel("t"),
    "consumers": lambda scripts: scripts.consumers(),
    "configure": lambda scripts: scripts.configure({"rate": 5, "period_ms": 1000, "per_key": None}),
    "collect": lambda scripts: scripts.collect(["g"]),
    "discard": lambda scripts: scripts.discard("dead", [Seen("d", NOW, "{}"), Seen("gone", NOW, "")]),
    "edit": lambda scripts: scripts.edit("d", NOW, NOW - 1, b"{}"),
    "expire": lambda scripts: scripts.expire(*HELD),
    "extend": lambda scripts: scripts.extend(*HELD, 2 * LEASE),
    "find": lambda scripts: scripts.find("u"),
    "free": lambda scripts: scripts.free([Keyed("k", "x", "0.0.0.0-1")]),
    "held_keys": lambda scripts: scripts.held_keys(scripts.keys.waiting, "", 9),
    "history": lambda scripts: scripts.history("u"),
    "leave": lambda scripts: scripts.leave("me", {0: 3}),
    "nack": lambda scripts: scripts.nack(*HELD, 0, "E"),
    "open": lambda scripts: scripts.open(1, create=True),
    "pause": lambda scripts: scripts.pause(),
    "pending_to_ready": lambda scripts: scripts.pending_to_ready(),
    "purge": lambda scripts: scripts.purge("dead"),
    "ready_to_unack": lambda scripts: scripts.ready_to_unack(2, LEASE),
    "reject": lambda scripts: scripts.reject(*HELD, "unwanted", "E"),
    "release": lambda scripts: scripts.release(*HELD, NOW, NOW * 1000),
    "repair": lambda scripts: scripts.repair("stray", 2 * NOW, LEASE),
    "replace": lambda scripts: scripts.replace("u", "+0", b"{}"),
    "requeue": lambda scripts: scripts.requeue(["d"], NOW - 1),
    "reschedule": lambda scripts: scripts.reschedule("t", NOW - 1),
    "rest": lambda scripts: scripts.rest("me", 60_000),
    "restore": lambda scripts: scripts.restore(
        "retry", [Kept("new", NOW - 1, b"{}", "1.0.0.0", "E"), Kept("g", NOW, b"{}"), Kept("p", NOW, b"{}")]
    ),
    "resume": lambda scripts: scripts.resume(),
    "ring": lambda scripts: scripts.ring(),
    "sample": lambda scripts: scripts.sample(["sent", "acked"]),
    "send": lambda scripts: scripts.send([("new", NOW - 1, b"{}"), ("g", "+0", b"{}"), ("p", "+0", b"{}")]),
    "send_unique": lambda scripts: scripts.send_unique([("new", NOW - 1, b"{}", 60_000)]),
    "stats": lambda scripts: scripts.stats(),
    "unack_to_retry": lambda scripts: scripts.unack_to_retry(),
    "upcoming": lambda scripts: scripts.upcoming(10, 3),
    "watch": lambda scripts: scripts.watch("me", 60_000),
    "why": lambda scripts: scripts.why("p"),
}

KEYED: dict[str, Any] = {  # two of key k run, of which one has ended and one is gone, and p waits
    "slots": {"k\00.0.0.0-1\0x": 0, "k\00.0.0.0-0\0u": 0},
    "waiting": {f"k\0{NOW - 9:015}\0p": 0},
    "parked": {"p": f"{NOW} {NOW - 9}"},
    "meta": {"per_key": 1},
}

READ_ONLY = {"consumers", "find", "held_keys", "history", "stats", "upcoming", "why"}

each_script = pytest.mark.parametrize("script", CALLS)


def state_for(script: str) -> dict[str, Any]:
    """The state; for resume, of a paused queue; for rest and watch, of an idle one; and of one with a limit per key."""
    if script in {"admit", "free", "held_keys", "why"}:
        return STATE | KEYED
    if script in {"rest", "watch"}:
        return {"pending": {"q": NOW + 10}, "messages": {"q": "{}"}}
    return STATE | ({"meta": {"paused": NOW}} if script == "resume" else {})
