"""Garbage: payloads to delete, and dead letters that are too old or too many."""

from __future__ import annotations

from typing import TypeAlias

from delayq.errors import DelayqError
from delayq.model.units import milliseconds
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands

Found: TypeAlias = list[tuple[QueueCommands, list[str]]]
"""Ids of garbage: a page for each shard that has any."""


def purge_old(context: QueueContext) -> Operation[bool]:
    """Purge a page of the dead letters that are past their retention or above the limit.

    Each shard keeps an equal part of the limit, and at least one. The script reads the limit each time, so dead letters
    are safe as soon as an operator raises it.

    Returns:
        whether there may be more.
    """
    shards, retention = (yield from context.opened()), context.settings.dead_retention
    up_to = "-inf" if retention is None else f"-{milliseconds(retention)}"
    results = yield [scripts.purge("dead", up_to, shards=len(shards)) for scripts in shards]
    return MAX_IDS in [context.unwrap(result, 0) for result in results]


def find(context: QueueContext) -> Operation[Found]:
    """Return some garbage of each shard; garbage on an unavailable shard has to wait."""
    shards = context.shards  # a claim beside this may learn that there are others
    pages = yield [scripts.page("garbage", MAX_IDS) for scripts in shards]
    return [(scripts, ids) for scripts, ids in zip(shards, pages, strict=True) if isinstance(ids, list) and ids]


def delete(garbage: Found) -> Operation[bool]:
    """Delete the payloads of the garbage that `find` returned; return whether there may be more."""
    results = yield [scripts.delete_payloads(ids) for scripts, ids in garbage]
    done = not any(isinstance(result, DelayqError) for result in results)
    return done and any(len(ids) >= MAX_IDS for _, ids in garbage)


def collect_some(context: QueueContext) -> Operation[bool]:
    """Delete the payloads of a page of each shard's garbage; return whether there may be more."""
    yield from context.opened()
    found = yield from find(context)
    return bool(found) and (yield from delete(found))


def collect(context: QueueContext) -> Operation[int]:
    """Delete the payloads of all garbage; return how many."""
    shards = yield from context.opened()
    count = 0
    for scripts in shards:
        while ids := (yield from execute(scripts.page("garbage", MAX_IDS))):
            count += yield from execute(scripts.delete_payloads(ids))
    return count
