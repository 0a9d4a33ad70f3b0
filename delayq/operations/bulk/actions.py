"""Act on any number of messages, and say in a word what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from delayq.operations.manage import BURIED
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Raw
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands

Act: TypeAlias = Callable[[QueueCommands, Sequence[str]], Operation[list[str]]]
"""Does something with up to 250 messages of a shard; returns a word for each, in their order."""


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
