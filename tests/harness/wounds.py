"""The damage done to the queue of `test_doctor`, and functions that read its state and the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from delayq.doctor import Finding, Report
from delayq.model.placement import STATES

P = "delayq:{jobs}:"
NOW = 1_700_000_000_000

Wound = Callable[[redis.Redis], object]


def of_queue(report: Report) -> list[Finding]:
    """The findings, except those about the test server, which keeps nothing on disk."""
    return [finding for finding in report.findings if finding.kind != "persistence"]


def kinds(report: Report) -> set[tuple[str, str | None]]:
    return {(finding.kind, finding.id) for finding in of_queue(report)}


def states(client: redis.Redis) -> dict[str, str]:
    ids: dict[Any, Any] = {state: client.zrange(P + state, 0, -1) for state in STATES}
    return {message_id.decode(): state for state in STATES for message_id in ids[state]}


# The damage, the doctor's name for it, and where the message is after the repair.
WOUNDS: dict[str, tuple[Wound, str, str | None, str | None]] = {
    "in-two-structures": (lambda r: r.zadd(P + "dead", {"pending": NOW}), "duplicate", "pending", "pending"),
    "runs-and-waits": (lambda r: r.zadd(P + "ready", {"unack": NOW}), "duplicate", "unack", "unack"),
    "payload-of-pending-gone": (lambda r: r.delete(P + "msg:pending"), "payload-missing", "pending", "dead"),
    "payload-of-ready-gone": (lambda r: r.delete(P + "msg:released"), "payload-missing", "released", "dead"),
    "payload-of-retry-gone": (lambda r: r.delete(P + "msg:retry"), "payload-missing", "retry", "dead"),
    "payload-of-dead-gone": (lambda r: r.delete(P + "msg:dead"), "payload-missing", "dead", "dead"),
    "payload-empty": (lambda r: r.delete(P + "msg:pending"), "payload-missing", "pending", "dead"),
    "in-no-structure": (lambda r: r.zrem(P + "pending", "pending"), "orphan", "pending", "dead"),
    "stray-payload": (lambda r: r.set(P + "msg:stray", "?"), "orphan", "stray", "dead"),
    "attempts-of-nobody": (lambda r: r.hset(P + "attempts", "x", "1.0.0.0"), "leftover", "x", None),
    "error-of-nobody": (lambda r: r.hset(P + "errors", "x", "E"), "leftover", "x", None),
    "reason-of-nobody": (lambda r: r.hset(P + "reasons", "x", "R"), "leftover", "x", None),
    "cancellation-of-nobody": (lambda r: r.sadd(P + "cancelled", "x"), "leftover", "x", None),
    "reason-of-the-living": (lambda r: r.hset(P + "reasons", "pending", "R"), "leftover", "pending", "pending"),
    "cancellation-of-waiting": (lambda r: r.sadd(P + "cancelled", "retry"), "leftover", "retry", "retry"),
    "attempts-of-garbage": (lambda r: r.hset(P + "attempts", "garbage", "1.0.0.0"), "leftover", "garbage", "garbage"),
    "unreadable-attempts": (lambda r: r.hset(P + "attempts", "retry", "many"), "attempts", "retry", "retry"),
    "due-never": (lambda r: r.zadd(P + "pending", {"pending": "inf"}), "score", "pending", "pending"),
    "due-before-time": (lambda r: r.zadd(P + "retry", {"retry": -1}), "score", "retry", "retry"),
    "lease-of-years": (lambda r: r.zadd(P + "unack", {"unack": NOW * 2}), "score", "unack", "unack"),
    "vanished": (lambda r: r.zrem(P + "pending", "pending") + r.delete(P + "msg:pending"), "books", None, None),
    "miscounted": (lambda r: r.hincrby(P + "stats", "acked", 2), "books", None, None),
    "unrecorded": (lambda r: r.hdel(P + "meta", "shards"), "meta", None, None),
}
