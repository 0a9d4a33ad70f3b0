"""What Redis holds of one queue, read in one round trip, and what the model says that it should hold."""

from __future__ import annotations

from functools import partial
from typing import Any

import redis

from delayq.model.placement import STATES
from delayq.protocol.queue_keys import QueueKeys
from tests.harness.model.held import Held
from tests.harness.model.model import Model

READ = """
local found, rang = {}, redis.call('DEL', KEYS[1])
for i = 2, 7 do found[#found + 1] = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES') end
for i = 8, 12 do found[#found + 1] = redis.call('HGETALL', KEYS[i]) end
return {rang, redis.call('SMEMBERS', KEYS[13]), redis.call('KEYS', '*'), unpack(found)}
"""
HASHES = ("attempts", "errors", "reasons", "stats", "meta")

NOTED = (b":consumers", b":crew", b":samples:minute", b":samples:ten")
"""The ends of keys that consumers write now and then, whatever becomes of messages."""


class Stored:
    """Reads a queue's raw state, and takes the token out of its bell."""

    def __init__(self, client: redis.Redis, keys: QueueKeys) -> None:
        names = [keys.bell, *map(keys.state, STATES), *(getattr(keys, name) for name in HASHES), keys.cancelled]
        self._read: Any = partial(client.eval, READ, len(names), *names)
        self.rang = False

    def read(self) -> dict[str, Any]:
        """Everything, each structure by its name; scores in thousandths of a millisecond."""
        rang, cancelled, keys, *structures = self._read()
        self.rang = bool(rang)
        flat = [dict(zip(each[::2], each[1::2], strict=True)) for each in structures]
        keys = [key for key in keys if not key.endswith(NOTED)]
        zsets = {state: {id.decode(): micros(score) for id, score in flat.pop(0).items()} for state in STATES}
        hashes = {name: {key.decode(): value.decode() for key, value in flat.pop(0).items()} for name in HASHES}
        hashes["meta"].pop("since", None)  # tests/lua/test_open_queue.py holds when that is
        hashes["stats"] = {name: count for name, count in hashes["stats"].items() if count != "0"}
        return zsets | hashes | {"cancelled": {id.decode() for id in cancelled}, "keys": {key.decode() for key in keys}}


def micros(score: bytes) -> int:
    return round(float(score) * 1000)


def explained(model: Model, keys: QueueKeys) -> dict[str, Any]:
    """What Redis must hold for what the model says."""
    inside = model.messages.values()
    zsets = {state: {m.id: raw_score(m) for m in inside if m.state == state} for state in STATES}
    meta = {"format": "1", "shards": "1"} if model.recorded else {}
    if model.has_ledger:
        meta["events"] = "100000"
    if model.paused is not None:
        meta["paused"] = str(model.paused)
    hashes = {
        "attempts": {m.id: f"{m.past}.{m.released}.{m.attempts_reset}.{m.lost}" for m in inside if m.known},
        "errors": {m.id: m.error for m in inside if m.error},
        "reasons": {m.id: m.reason for m in inside if m.reason},
        "stats": {name: str(count) for name, count in model.counters.items() if count},
        "meta": meta,
    }
    cancelled = {m.id for m in inside if m.cancelled and m.state == "unack"}
    named = {name for name, held in (zsets | hashes | {"cancelled": cancelled}).items() if held}
    names = {str(getattr(keys, name)) for name in named} | {keys.message(m.id) for m in inside if m.has_payload}
    if model.has_ledger and model.counters:
        names.add(keys.events)
    names |= {keys.unique(message_id) for message_id in model.reserved}  # until Redis drops it, by its own clock
    return zsets | hashes | {"cancelled": cancelled, "keys": names}


def raw_score(m: Held) -> int:
    return m.lease_end * 1000 + m.handed_micros if m.state == "unack" else m.score * 1000
