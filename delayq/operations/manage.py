"""Manage messages: cancel, reschedule, pause, requeue, purge, and the garbage collector."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from delayq.errors import InvalidInput, InvalidTime
from delayq.model.choice import Choice
from delayq.model.outcome import BURIED, error_text
from delayq.model.placement import PURGEABLE, State, check_state
from delayq.model.queue_stats import QueueStats
from delayq.model.units import MAX_PAUSE_MS, Seconds, due_word, milliseconds, span_ms, timestamp_ms
from delayq.model.validation import check_id
from delayq.operations import registry, schedule_chain
from delayq.operations.bulk.redrive import Redrive
from delayq.operations.garbage import collect
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_IDS, MAX_MOVED, QueueCommands

Progress: TypeAlias = Callable[[int], object] | None
"""Called with the number of messages of each step."""


def cancel(context: QueueContext, message_id: str, running: bool = False) -> Operation[Any]:
    """Cancel a message; `running`: also stop its handler."""
    check_id(message_id)
    yield from context.opened()
    cancelled = yield from execute(context.shard(message_id).cancel(message_id, running))
    if cancelled == "cancelled":
        yield from schedule_chain.go_on(context, [message_id])
    return cancelled


def reschedule(context: QueueContext, message_id: str, delay: Seconds | None, at: dt.datetime | None) -> Operation[Any]:
    """Give a waiting message a new due time."""
    check_id(message_id)
    if delay is None and at is None:
        raise InvalidInput("reschedule needs delay= or at=")
    due = due_word(delay, at)
    yield from context.opened()
    rescheduled = yield from execute(context.shard(message_id).reschedule(message_id, due))
    if rescheduled == "rescheduled":
        yield from schedule_chain.go_on(context, [message_id])
    return rescheduled


def pause(context: QueueContext, seconds: Seconds | None = None) -> Operation[None]:
    """Hand out nothing for some seconds, or until `resume`."""
    for_ms = None if seconds is None else span_ms(seconds, "pause")
    if for_ms is not None and not 1 <= for_ms <= MAX_PAUSE_MS:
        raise InvalidTime(f"pause {seconds!r} is not between 0.001 seconds and 366 days: None lasts until resume")
    shards = yield from context.opened(create=True)
    for result in (yield [scripts.pause(for_ms) for scripts in shards]):
        unwrap(result)


def resume(context: QueueContext) -> Operation[None]:
    """Hand out messages again."""
    shards = yield from context.opened()
    for result in (yield [scripts.resume() for scripts in shards]):
        unwrap(result)


def toggle(context: QueueContext, seen: QueueStats) -> Operation[bool]:
    """Pause or resume a queue if it is still as it was seen; return whether it was."""
    shards = yield from context.opened()
    if seen.paused_since is None:
        calls = [scripts.pause(if_running=True) for scripts in shards]
    else:
        calls = [scripts.resume(timestamp_ms(seen.at)) for scripts in shards]
    return any(list(map(unwrap, (yield calls))))


def remove(context: QueueContext) -> Operation[int]:
    """Remove an empty queue; return how many messages it holds. If that is above 0, it stays."""
    yield from collect(context)
    for scripts in reversed(context.shards):  # the first one last, as it records the number of shards
        if held := (yield from execute(scripts.remove_queue())):
            return held
    yield from registry.remove_gone(context.prefix, "queue", [context.name])
    context.begin(context.clock)
    return 0


def bury(context: QueueContext, message_id: str, reason: str) -> Operation[Any]:
    """Move a waiting message to the dead letters."""
    check_id(message_id)
    yield from context.opened()
    buried = yield from execute(context.shard(message_id).bury(message_id, error_text(reason) or BURIED))
    if buried == "buried":
        yield from schedule_chain.go_on(context, [message_id])
    return buried


def requeue_chosen(
    context: QueueContext, ids: str | Iterable[str], delay: Seconds, progress: Progress = None
) -> Operation[int]:
    """Requeue the dead letters that `ids` names: one id, several, or "all"."""
    if ids == "all":
        return (yield from requeue_all(context, delay, progress))
    if not isinstance(ids, Iterable):
        raise InvalidInput(f"ids {ids!r} is not an id, an iterable of ids, or 'all'")
    return (yield from requeue(context, [ids] if isinstance(ids, str) else list(ids), delay, progress))


def requeue(context: QueueContext, ids: Sequence[str], delay: Seconds = 0, progress: Progress = None) -> Operation[int]:
    """Requeue dead letters by their ids; return how many there were."""
    for message_id in ids:
        check_id(message_id)  # check all before changing anything
    due = due_word(delay, None)
    yield from context.opened()
    count = 0
    for start in range(0, len(ids), MAX_MOVED):
        by_shard: dict[int, tuple[QueueCommands, list[str]]] = {}
        for message_id in ids[start : start + MAX_MOVED]:
            scripts = context.shard(message_id)
            by_shard.setdefault(id(scripts), (scripts, []))[1].append(message_id)
        replies = yield [scripts.requeue(part, due) for scripts, part in by_shard.values()]
        moved = sum(sum(unwrap(reply)) for reply in replies)
        count += moved
        if progress is not None:
            progress(moved)
    return count


def requeue_all(context: QueueContext, delay: Seconds = 0, progress: Progress = None) -> Operation[int]:
    """Requeue all current dead letters, except those without a payload; return how many there were."""
    redrive = Redrive(Choice(), delay)
    while not redrive.done:
        before = redrive.progress.moved
        now = yield from redrive.step(context)
        if progress is not None:
            progress(now.moved - before)
    return redrive.progress.moved


def purge(
    context: QueueContext, states: Iterable[State], older_than: Seconds | None = None, progress: Progress = None
) -> Operation[int]:
    """Discard the messages that are now in these states, at most as many as at the start; return how many."""
    chosen = list(states)
    for state in chosen:
        check_state(state, PURGEABLE)
    chosen.sort(key=lambda state: state != "held")  # first: the end of its group would make one of these due
    age = None if older_than is None else milliseconds(older_than, "older_than")
    shards = yield from context.opened()
    count = 0
    for scripts in shards:
        now = yield from execute(scripts.stats())
        for state in chosen:
            up_to = "+inf" if age is None else max(0, now.now_ms - age)  # for the script, -N is an age
            left = now.counts[state]
            while left > 0:
                purged = yield from execute(scripts.purge(state, up_to, min(left, MAX_IDS)))
                count += purged
                if progress is not None:
                    progress(purged)
                left = left - purged if purged else 0
    yield from collect(context)
    return count
