"""Act on any number of messages, and say in a word what became of each."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from delayq.model.text import encode_id
from delayq.model.units import MAX_TIME_MS
from delayq.operations.inspect import WAITING
from delayq.operations.manage import BURIED
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command, Raw
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands

Act: TypeAlias = Callable[[QueueCommands, Sequence[str]], Operation[list[str]]]
"""Does something with up to 250 messages of a shard; returns a word for each, in their order."""


Due: TypeAlias = Callable[[str, float], int]
"""Returns the due time that a message is to have, ms, by its id and the one that it has."""


def cancelling(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
    """Withdraw messages: "cancelled", "in_flight" or "unknown"."""
    return [unwrap(told) for told in (yield [scripts.cancel(message_id) for message_id in ids])]


def burying(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
    """Put messages that wait among the dead letters: "buried", "in_flight", "dead" or "unknown"."""
    return [unwrap(told) for told in (yield [scripts.bury(message_id, BURIED) for message_id in ids])]


def rescheduling(due: Raw) -> Act:
    """Give waiting messages another due time: "rescheduled", "in_flight", "dead" or "unknown"."""

    def act(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
        return [unwrap(told) for told in (yield [scripts.reschedule(message_id, due) for message_id in ids])]

    return act


def retiming(due: Due) -> Act:
    """Give each waiting message a due time of its own; the words are those of `rescheduling`."""

    def act(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
        keys = [scripts.keys.state(state) for state in WAITING]
        asked = [Command(key, ("ZSCORE", key, encode_id(each)), _score) for each in ids for key in keys]
        scores = [unwrap(told) for told in (yield asked)]
        found = [
            next((at for at in scores[n : n + len(keys)] if at is not None), 0.0)
            for n in range(0, len(scores), len(keys))
        ]
        commands = [scripts.reschedule(each, due(each, at)) for each, at in zip(ids, found, strict=True)]
        return [unwrap(told) for told in (yield commands)]

    return act


def shifted(by_ms: int) -> Due:
    """Return what moves a due time."""
    return lambda _, at: _bounded(int(at) + by_ms)


def spread(start_ms: int, over_ms: int) -> Due:
    """Return what gives each message a due time of its own from a start on, by its id: always the same one."""
    return lambda message_id, _: _bounded(
        start_ms + zlib.crc32(message_id.encode(errors="surrogateescape")) * over_ms // 2**32
    )


def _bounded(due_ms: int) -> int:
    return min(max(due_ms, 1), MAX_TIME_MS)


def _score(reply: bytes | None) -> float | None:
    return None if reply is None else float(reply)


def requeueing(due: Raw) -> Act:
    """Bring dead letters back: "requeued", or "left" where one is not dead any more, or its payload is gone."""

    def act(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
        moved = yield from execute(scripts.requeue(ids, due))
        return ["requeued" if each else "left" for each in moved]

    return act


def each(context: QueueContext, act: Act, ids: Sequence[str]) -> Operation[dict[str, str]]:
    """Do it with these messages; return the word for each."""
    yield from context.opened()
    told: dict[str, str] = {}
    unique = list(dict.fromkeys(ids))
    for scripts, positions in context.by_shard(range(len(unique)), unique.__getitem__):
        for start in range(0, len(positions), MAX_MOVED):
            some = [unique[position] for position in positions[start : start + MAX_MOVED]]
            told |= zip(some, (yield from act(scripts, some)), strict=True)
    return told
