"""Backup: messages and schedules put back as they were, and messages removed as they were seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.calls import Call, Steps, as_is, expect, id_of, one
from delayq.keys import State
from delayq.operations import scanning
from delayq.operations.arming import home
from delayq.operations.core import Core
from delayq.operations.sending import CALLS_A_TRIP, MAX_CALL_BYTES, MAX_SENT
from delayq.plan import occurrence_id
from delayq.scripts import Kept, Scripts, Seen

PAUSED = 0

Known = TypeVar("Known", Kept, Seen)
Build = Callable[[Scripts, State, Sequence[Known]], Call[list[int]]]


class KeptSchedule(NamedTuple):
    """A schedule as it is stored: its record, and the slot that is armed, ms; 0 for one that is paused."""

    name: str
    record: bytes
    slot_ms: int


def restore(core: Core, messages: Sequence[tuple[State, Kept]]) -> Steps[list[bool]]:
    """Put messages back; return which were not there, in their order. Their ids all differ."""
    return (yield from _run(core, messages, lambda each: len(each.stored), Scripts.restore))


def discard(core: Core, messages: Sequence[tuple[State, Seen]]) -> Steps[list[bool]]:
    """Remove messages, each if it is still as it was seen; return which were, in their order. Their ids all differ."""
    removed = yield from _run(core, messages, lambda _: 0, Scripts.discard)
    # What was pending may have come due since: that is no change of the message.
    due = [number for number, (state, _) in enumerate(messages) if state == "pending" and not removed[number]]
    again = yield from _run(core, [("ready", messages[number][1]) for number in due], lambda _: 0, Scripts.discard)
    for number, found in zip(due, again, strict=True):
        removed[number] = found
    return removed


def schedules(core: Core) -> Steps[list[KeptSchedule]]:
    """Return the schedules of a queue, by name."""
    yield from core.opened()
    keys = home(core).keys
    records: dict[str, bytes] = {}

    def look(items: dict[bytes, Any]) -> Steps[None]:
        records.update({id_of(name): record for name, record in items.items()})
        yield from ()

    yield from scanning.structure("HSCAN", keys.schedules, look)
    names = sorted(records)
    calls = [Call(keys.armed, ("ZSCORE", keys.armed, name), _slot) for name in names]
    slots = map(expect, (yield calls) if calls else [])
    return [KeptSchedule(name, records[name], slot) for name, slot in zip(names, slots, strict=True)]


def restore_schedule(core: Core, kept: KeptSchedule) -> Steps[bool]:
    """Put a schedule back, unless one of its name is there; its occurrence is a message like others."""
    yield from core.opened(create=True)
    return bool((yield from one(home(core).arm(kept.name, "", "", kept.record, kept.slot_ms))))


def discard_schedule(core: Core, kept: KeptSchedule) -> Steps[bool]:
    """Remove a schedule, if it is still as it was seen, and leave its occurrence alone."""
    yield from core.opened()
    key = home(core).keys.schedules
    record = yield from one(Call(key, ("HGET", key, kept.name), as_is))
    if record != kept.record:  # edited since: its slot may be the same
        return False
    return bool((yield from one(home(core).arm(kept.name, kept.slot_ms, "", b"", ""))))


def renamed(kept: Sequence[KeptSchedule], shards_then: int, shards: int) -> dict[str, str]:
    """Return the occurrences on their way that have other ids in a queue of so many shards, with these."""
    names = {
        occurrence_id(each.name, each.slot_ms, shards_then): occurrence_id(each.name, each.slot_ms, shards)
        for each in kept
        if each.slot_ms != PAUSED
    }
    return {before: after for before, after in names.items() if before != after}


def _run(
    core: Core, messages: Sequence[tuple[State, Known]], size: Callable[[Known], int], build: Build[Known]
) -> Steps[list[bool]]:
    """Hand messages to a script, so many a call and a trip; return its answers in their order."""
    results = [False] * len(messages)
    yield from core.opened(create=True)
    calls = [
        (build(scripts, state, [messages[i][1] for i in group]), group)
        for scripts, state, group in _groups(core, messages, size)
    ]
    for start in range(0, len(calls), CALLS_A_TRIP):
        trip = calls[start : start + CALLS_A_TRIP]
        for (_, group), reply in zip(trip, (yield [call for call, _ in trip]), strict=True):
            for number, done in zip(group, expect(reply), strict=True):
                results[number] = bool(done)
    return results


def _groups(
    core: Core, messages: Sequence[tuple[State, Known]], size: Callable[[Known], int]
) -> Iterator[tuple[Scripts, State, list[int]]]:
    """Cut messages into what goes into one call: of one shard, for one state, bounded."""
    kinds: dict[tuple[Scripts, State], list[int]] = {}
    for number, (state, message) in enumerate(messages):
        kinds.setdefault((core.shard(message.message_id), state), []).append(number)
    for (scripts, state), numbers in kinds.items():
        group: list[int] = []
        total = 0
        for number in numbers:
            weight = size(messages[number][1])
            if group and (len(group) >= MAX_SENT or total + weight > MAX_CALL_BYTES):
                yield scripts, state, group
                group, total = [], 0
            group.append(number)
            total += weight
        yield scripts, state, group


def _slot(reply: Any) -> int:
    return PAUSED if reply is None else int(float(reply))
