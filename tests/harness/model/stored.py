"""What Redis holds for one queue, and what it should hold according to the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import redis

from delayq.model.placement import STATES
from delayq.protocol.queue_keys import QueueKeys
from tests.harness.model.held import Held
from tests.harness.model.model import Model

READ = """
local found, rang = {}, redis.call('DEL', KEYS[1])
for i = 2, 9 do found[#found + 1] = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES') end
for i = 10, 17 do found[#found + 1] = redis.call('HGETALL', KEYS[i]) end
return {rang, redis.call('SMEMBERS', KEYS[18]), redis.call('KEYS', ARGV[1]), unpack(found)}
"""
ZSETS = (*STATES, "armed")
HASHES = ("attempts", "errors", "reasons", "members", "groups", "rosters", "stats", "meta")

RESULT = ":result:"

NOTED = (
    *(b":consumers", b":crew", b":samples:minute", b":samples:ten", b":timer", b":watch"),
    *(b":rate", b":replaced", b":slots", b":waiting", b":parked"),
    *(b":meta", b":stats", b":events"),
)
"""The ends of keys that consumers write now and then; of those that limits need, whose content shows in what they
allow; and of those whose content is compared as a whole."""


class Stored:
    """Reads a queue's raw state, one round trip per shard, and takes the token out of its bell."""

    def __init__(self, client: redis.Redis, shards: Sequence[QueueKeys]) -> None:
        self._client = client
        self._reads: list[Any] = []
        for keys in shards:
            named = (*(getattr(keys, name) for name in ("armed", *HASHES)), keys.cancelled)
            names = [keys.bell, *map(keys.state, STATES), *named]
            tag = keys.message_prefix.removesuffix("msg:")
            self._reads.append(partial(client.eval, READ, len(names), *names, tag + "*"))
        self.rang: list[bool] = []

    def read(self) -> dict[str, Any]:
        """Everything, each structure by its name; scores in thousandths of a millisecond."""
        self.rang, whole = [], dict[str, Any]()
        for read in self._reads:
            rang, cancelled, keys, *structures = read()
            self.rang.append(bool(rang))
            flat = [dict(zip(each[::2], each[1::2], strict=True)) for each in structures]
            part: dict[str, Any] = {
                name: {id.decode(): micros(score) for id, score in flat.pop(0).items()} for name in ZSETS
            }
            for name in HASHES:
                part[name] = {key.decode(): value.decode() for key, value in flat.pop(0).items()}
            part["meta"].pop("packed", None)  # how much of the ledger is packed
            part["meta"].pop("since", None)  # tests/lua/test_open_queue.py checks it
            part["meta"].pop("mark", None)  # tests/lua/test_ledger_extent.py checks it
            part["stats"] = Counter({name: int(count) for name, count in part["stats"].items() if count != "0"})
            for place in ("", "\0"):  # where the sweeps are
                part["groups"].pop(place, None)
            part["cancelled"] = {id.decode() for id in cancelled}
            part["keys"] = {key.decode() for key in keys if not key.endswith(NOTED)}
            for name, held in part.items():
                if name not in whole:
                    whole[name] = held
                elif name != "meta":  # on the other shards, it repeats that of the first, or a part of it
                    whole[name] = whole[name] + held if name == "stats" else whole[name] | held
        whole["records"] = self._records(whole["keys"])
        return whole

    def _records(self, keys: Iterable[str]) -> dict[str, tuple[str, str]]:
        """The token and the status of each record of a task."""
        names = [each for each in keys if RESULT in each]
        with self._client.pipeline(transaction=False) as pipeline:
            for each in names:
                pipeline.hmget(each, "token", "status")
            found = pipeline.execute()
        return {
            each.partition(RESULT)[2]: (token.decode(), status.decode())
            for each, (token, status) in zip(names, found, strict=True)
        }


def micros(score: bytes) -> int:
    return round(float(score) * 1000)


def explained(model: Model, shards: Sequence[QueueKeys]) -> dict[str, Any]:
    """What Redis must hold according to the model."""
    inside = model.messages.values()
    zsets: dict[str, dict[str, int]] = {
        state: {m.id: raw_score(m) for m in inside if m.state == state} for state in STATES
    }
    zsets["armed"] = {name: each.armed * 1000 for name, each in model.schedules.items()}
    hashes = {
        "attempts": {m.id: f"{m.past}.{m.released}.{m.attempts_reset}.{m.lost}" for m in inside if m.known},
        "errors": {m.id: m.error for m in inside if m.error},
        "reasons": {m.id: m.reason for m in inside if m.reason},
        "members": model.members,
        "groups": {name: group.stored for name, group in model.groups.items()},
        "rosters": {name: "\n".join(group.roster) for name, group in model.groups.items()},
        "stats": {name: count for name, count in model.counters.items() if count},
        "meta": meta_of(model),
    }
    cancelled = {m.id for m in inside if m.cancelled and m.state == "unack"}
    hashes["records"] = {id: each[:2] for id, each in model.records.items()}
    return zsets | hashes | {"cancelled": cancelled, "keys": {*names(model, shards, zsets | hashes, cancelled)}}


def meta_of(model: Model) -> dict[str, str]:
    """The record of the queue."""
    meta = {"format": str(min(2, max(1, model.needs))), "shards": str(model.shards)} if model.recorded else {}
    for name in ("paused", "paused_until", "max_dead", "max_length", "concurrency", "per_key"):
        if (value := getattr(model, name)) is not None:
            meta[name] = str(value)
    if model.has_ledger:
        meta["events"] = "100000"
    if model.needs:
        meta["needs"] = f"{model.needs} 0.1.0"
    if model.unbound:
        meta["removed:max_length"] = "1"
    if model.rate:
        meta["rate"], meta["period_ms"] = map(str, model.rate)
    return meta


def names(model: Model, shards: Sequence[QueueKeys], structures: dict[str, Any], cancelled: set[str]) -> set[str]:
    """The names of the keys that must exist."""
    found: set[str] = set()
    for name in (*STATES, "attempts", "errors", "reasons", "members", "groups", "rosters"):
        found |= {str(getattr(shards[model.home_of(id)], name)) for id in structures[name]}
    found |= {shards[model.home_of(id)].cancelled for id in cancelled}
    found |= {shards[home].groups for home in model.swept}
    found |= {shards[model.home_of(id)].result(id) for id in model.records}
    found |= {shards[home].finished for home in model.finished}
    found |= {shards[model.home_of(m.id)].message(m.id) for m in model.messages.values() if m.has_payload}
    found |= {shards[model.home_of(id)].unique(id) for id in model.reserved}  # until Redis drops it by its own clock
    if model.schedules:
        found |= {shards[0].armed, shards[0].schedules}
    return found


def raw_score(m: Held) -> int:
    return m.lease_end_us if m.state == "unack" else m.score * 1000
