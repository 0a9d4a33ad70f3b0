"""Backup: put messages and schedules back as they were, and remove messages that are still as they were seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from delayq.model.backup import ExpectedMessage, KeptMessage, KeptSchedule
from delayq.model.occurrence import FINISHED, PAUSED
from delayq.model.placement import State
from delayq.model.progress import Progress
from delayq.model.text import decode_id
from delayq.model.units import MAX_TIME_MS
from delayq.operations import scan
from delayq.operations.byte_budget import UP_CALL_BYTES, trips
from delayq.operations.doctor.server import ask
from delayq.operations.queue_context import QueueContext
from delayq.operations.schedule_chain import home
from delayq.operations.send import CALLS_A_TRIP, MAX_SENT
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import QueueCommands

Known = TypeVar("Known", KeptMessage, ExpectedMessage)
Build = Callable[[QueueCommands, State, Sequence[Known]], Command[list[int]]]


def restore(
    context: QueueContext, messages: Sequence[tuple[State, KeptMessage]], progress: Progress
) -> Operation[list[bool]]:
    """Put messages back; return in order which ones did not exist. Their ids must all differ."""
    return (yield from _run(context, messages, lambda each: len(each.stored), QueueCommands.restore, progress))


def discard(
    context: QueueContext, messages: Sequence[tuple[State, ExpectedMessage]], progress: Progress
) -> Operation[list[bool]]:
    """Remove messages that are still as they were seen; return in order which were. Their ids must all differ."""
    removed = yield from _run(context, messages, lambda _: 0, QueueCommands.remove_if_unchanged, progress)
    # A pending message may have come due since, which does not count as a change.
    due = [number for number, (state, _) in enumerate(messages) if state == "pending" and not removed[number]]
    ready: list[tuple[State, ExpectedMessage]] = [("ready", messages[number][1]) for number in due]
    again = yield from _run(context, ready, lambda _: 0, QueueCommands.remove_if_unchanged, Progress(""))
    for number, found in zip(due, again, strict=True):
        removed[number] = found
    return removed


def schedules(context: QueueContext) -> Operation[list[KeptSchedule]]:
    """Return the schedules of a queue, by name."""
    yield from context.opened()
    keys = home(context).keys
    records: dict[str, bytes] = {}

    def look(items: dict[bytes, Any]) -> Operation[None]:
        records.update({decode_id(name): record for name, record in items.items()})
        yield from ()

    yield from scan.structure("HSCAN", keys.schedules, look)
    names = sorted(records)
    calls = [Command(keys.armed, ("ZSCORE", keys.armed, name), _slot) for name in names]
    slots = map(unwrap, (yield calls) if calls else [])
    return [KeptSchedule(name, records[name], slot) for name, slot in zip(names, slots, strict=True)]


def restore_schedule(context: QueueContext, kept: KeptSchedule) -> Operation[bool]:
    """Put a schedule back, unless one with its name exists; its occurrence is restored like other messages."""
    yield from context.opened(create=True)
    return bool((yield from execute(home(context).enqueue_occurrence(kept.name, "", "", kept.record, kept.slot_ms))))


def discard_schedule(context: QueueContext, kept: KeptSchedule) -> Operation[bool]:
    """Remove a schedule if it is still as it was seen, without its occurrence."""
    yield from context.opened()
    key = home(context).keys.schedules
    record = yield from execute(Command(key, ("HGET", key, kept.name), identity))
    if record != kept.record:  # edited since, perhaps with the same slot
        return False
    return bool((yield from execute(home(context).enqueue_occurrence(kept.name, kept.slot_ms, "", b"", ""))))


def server_version(context: QueueContext) -> Operation[str | None]:
    """Return the version of Redis; None if the server does not say."""
    shards = yield from context.opened()
    return (yield from ask(shards[0])).version


def _run(
    context: QueueContext,
    messages: Sequence[tuple[State, Known]],
    size: Callable[[Known], int],
    build: Build[Known],
    progress: Progress,
) -> Operation[list[bool]]:
    """Pass messages to a script in bounded calls and round trips; return its answers in order."""
    results = [False] * len(messages)
    yield from context.opened(create=True)
    calls = _calls(context, messages, size, build)
    for trip in trips(calls, CALLS_A_TRIP):
        progress.in_doubt = True
        replies = yield [call for call, _ in trip]
        progress.note([group for _, group in trip], replies)
        for (_, group), reply in zip(trip, replies, strict=True):
            for number, done in zip(group, unwrap(reply), strict=True):
                results[number] = bool(done)
    return results


def _calls(
    context: QueueContext, messages: Sequence[tuple[State, Known]], size: Callable[[Known], int], build: Build[Known]
) -> Iterator[tuple[tuple[Command[list[int]], list[int]], int]]:
    """Yield calls, each for one shard and state, with the positions of their messages, and their bytes."""
    kinds: dict[tuple[QueueCommands, State], list[int]] = {}
    for number, (state, message) in enumerate(messages):
        kinds.setdefault((context.shard(message.message_id), state), []).append(number)
    sizes = [size(message) for _, message in messages]
    for (scripts, state), numbers in kinds.items():
        for group in trips(((number, sizes[number]) for number in numbers), MAX_SENT, UP_CALL_BYTES):
            call = build(scripts, state, [messages[number][1] for number in group])
            yield (call, group), sum(sizes[number] for number in group)


def _slot(reply: Any) -> int:
    return PAUSED if reply is None else int(min(MAX_TIME_MS, max(FINISHED, float(reply))))
