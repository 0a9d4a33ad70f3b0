"""Managing: cancel, reschedule, pause, requeue, purge, and the garbage collector."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from delayq.calls import Steps, expect, one
from delayq.errors import DelayqError, InvalidInput
from delayq.keys import State
from delayq.names import check_id
from delayq.operations.choosing import Choice
from delayq.operations.core import Core
from delayq.operations.inspecting import check_state
from delayq.operations.redriving import Redrive
from delayq.operations.sealing import due_word
from delayq.scripts import MAX_IDS, MAX_MOVED, Scripts
from delayq.times import Seconds, milliseconds

Cancelled = Literal["cancelled", "in_flight", "unknown"]
Rescheduled = Literal["rescheduled", "in_flight", "dead", "unknown"]

PURGEABLE: tuple[State, ...] = ("pending", "ready", "retry", "dead")


def cancel(core: Core, message_id: str) -> Steps[Any]:
    """Withdraw a message."""
    check_id(message_id)
    yield from core.opened()
    return (yield from one(core.shard(message_id).cancel(message_id)))


def reschedule(core: Core, message_id: str, delay: Seconds | None, at: dt.datetime | None) -> Steps[Any]:
    """Give a waiting message another due time."""
    check_id(message_id)
    if delay is None and at is None:
        raise InvalidInput("reschedule needs delay= or at=: give one of them")
    due = due_word(delay, at)
    yield from core.opened()
    return (yield from one(core.shard(message_id).reschedule(message_id, due)))


def pause(core: Core) -> Steps[None]:
    """Hand out nothing until resume."""
    shards = yield from core.opened(create=True)
    for result in (yield [scripts.pause() for scripts in shards]):
        expect(result)


def resume(core: Core) -> Steps[None]:
    """Hand out messages again."""
    shards = yield from core.opened()
    for result in (yield [scripts.resume() for scripts in shards]):
        expect(result)


def requeue_chosen(core: Core, ids: str | Iterable[str], delay: Seconds) -> Steps[int]:
    """Bring back what `ids` names: one id, several, or "all"."""
    if ids == "all":
        return (yield from requeue_all(core, delay))
    if not isinstance(ids, Iterable):
        raise InvalidInput(f"ids {ids!r} are neither an id, nor several, nor 'all'")
    return (yield from requeue(core, [ids] if isinstance(ids, str) else list(ids), delay))


def requeue(core: Core, ids: Sequence[str], delay: Seconds = 0) -> Steps[int]:
    """Bring dead letters back by their ids; return how many there were."""
    for message_id in ids:
        check_id(message_id)  # all of them, before anything is changed
    due = due_word(delay, None)
    yield from core.opened()
    count = 0
    for start in range(0, len(ids), MAX_MOVED):
        by_shard: dict[int, tuple[Scripts, list[str]]] = {}
        for message_id in ids[start : start + MAX_MOVED]:
            scripts = core.shard(message_id)
            by_shard.setdefault(id(scripts), (scripts, []))[1].append(message_id)
        replies = yield [scripts.requeue(part, due) for scripts, part in by_shard.values()]
        count += sum(sum(expect(reply)) for reply in replies)
    return count


def requeue_all(core: Core, delay: Seconds = 0) -> Steps[int]:
    """Bring back all that is dead now, but for those without a payload; return how many there were."""
    redrive = Redrive(core, Choice(), delay)
    while not redrive.done:
        yield from redrive.step()
    return redrive.told.moved


def purge(core: Core, states: Iterable[State], older_than: Seconds | None = None) -> Steps[int]:
    """Discard what is in these states now, at most as many as there are at the start; return how many."""
    chosen = list(states)
    for state in chosen:
        check_state(state, PURGEABLE)
    age = None if older_than is None else milliseconds(older_than, "older_than")
    shards = yield from core.opened()
    count = 0
    for scripts in shards:
        now = yield from one(scripts.stats())
        for state in chosen:
            up_to = "+inf" if age is None else now.now_ms - age
            left = now.counts[state]
            while left > 0:
                purged = yield from one(scripts.purge(state, up_to, min(left, MAX_IDS)))
                count += purged
                left = left - purged if purged else 0
    yield from collect(core)
    return count


def bury_old(core: Core) -> Steps[int]:
    """Purge the dead letters that are past the queue's retention; return how many."""
    if core.settings.dead_retention is None:
        return 0
    age = milliseconds(core.settings.dead_retention)
    shards = yield from core.opened()
    count = 0
    for scripts in shards:
        now = yield from one(scripts.stats())
        left = now.counts["dead"] if now.heads_ms.get("dead", now.now_ms) <= now.now_ms - age else 0
        while left > 0:
            purged = yield from one(scripts.purge("dead", now.now_ms - age))
            count += purged
            left = left - purged if purged == MAX_IDS else 0
    return count


def find_garbage(core: Core) -> Steps[list[tuple[Scripts, list[str]]]]:
    """Return some garbage of each shard, to be collected; that of a shard which does not serve has to wait."""
    pages = yield [scripts.page("garbage", MAX_IDS) for scripts in core.shards]
    return [(scripts, ids) for scripts, ids in zip(core.shards, pages, strict=True) if isinstance(ids, list) and ids]


def collect_found(garbage: list[tuple[Scripts, list[str]]]) -> Steps[bool]:
    """Delete the payloads of garbage that was found; return whether there may be more."""
    results = yield [scripts.collect(ids) for scripts, ids in garbage]
    done = not any(isinstance(result, DelayqError) for result in results)
    return done and any(len(ids) >= MAX_IDS for _, ids in garbage)


def collect(core: Core) -> Steps[int]:
    """Delete the payloads of all garbage; return how many."""
    shards = yield from core.opened()
    count = 0
    for scripts in shards:
        while ids := (yield from one(scripts.page("garbage", MAX_IDS))):
            count += yield from one(scripts.collect(ids))
    return count
