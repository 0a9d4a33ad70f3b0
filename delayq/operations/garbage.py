"""Garbage: payloads to be deleted, and dead letters past their retention."""

from __future__ import annotations

from typing import TypeAlias

from delayq.errors import DelayqError
from delayq.model.units import milliseconds
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands

Found: TypeAlias = list[tuple[QueueCommands, list[str]]]
"""Ids of garbage, a page for each shard that has any."""


def purge_old(context: QueueContext) -> Operation[bool]:
    """Purge a page of the dead letters that are past the queue's retention; return whether there may be more."""
    if context.settings.dead_retention is None:
        return False
    age = milliseconds(context.settings.dead_retention)
    shards = yield from context.opened()
    counts = list(map(unwrap, (yield [scripts.stats() for scripts in shards])))
    old = [
        scripts.purge("dead", now.now_ms - age)
        for scripts, now in zip(shards, counts, strict=True)
        if now.heads_ms.get("dead", now.now_ms) <= now.now_ms - age
    ]
    purged = list(map(unwrap, (yield old))) if old else []
    return MAX_IDS in purged


def find(context: QueueContext) -> Operation[Found]:
    """Return some garbage of each shard, to be collected; that of a shard which does not serve has to wait."""
    pages = yield [scripts.page("garbage", MAX_IDS) for scripts in context.shards]
    return [(scripts, ids) for scripts, ids in zip(context.shards, pages, strict=True) if isinstance(ids, list) and ids]


def delete(garbage: Found) -> Operation[bool]:
    """Delete the payloads of garbage that was found; return whether there may be more."""
    results = yield [scripts.delete_payloads(ids) for scripts, ids in garbage]
    done = not any(isinstance(result, DelayqError) for result in results)
    return done and any(len(ids) >= MAX_IDS for _, ids in garbage)


def collect(context: QueueContext) -> Operation[int]:
    """Delete the payloads of all garbage; return how many."""
    shards = yield from context.opened()
    count = 0
    for scripts in shards:
        while ids := (yield from execute(scripts.page("garbage", MAX_IDS))):
            count += yield from execute(scripts.delete_payloads(ids))
    return count
