"""Acting: what can be done with any number of messages, and what became of each of them, in a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from delayq.calls import Raw, Steps, expect, one
from delayq.operations.core import Core
from delayq.scripts import MAX_MOVED, Scripts

Act: TypeAlias = Callable[[Scripts, Sequence[str]], Steps[list[str]]]
"""Does something with up to 250 messages of a shard; returns a word for each, in their order."""


def cancelling(scripts: Scripts, ids: Sequence[str]) -> Steps[list[str]]:
    """Withdraw messages: "cancelled", "in_flight" or "unknown"."""
    return [expect(told) for told in (yield [scripts.cancel(message_id) for message_id in ids])]


def rescheduling(due: Raw) -> Act:
    """Give waiting messages another due time: "rescheduled", "in_flight", "dead" or "unknown"."""

    def act(scripts: Scripts, ids: Sequence[str]) -> Steps[list[str]]:
        return [expect(told) for told in (yield [scripts.reschedule(message_id, due) for message_id in ids])]

    return act


def requeueing(due: Raw) -> Act:
    """Bring dead letters back: "requeued", or "left" where one is not dead any more, or its payload is gone."""

    def act(scripts: Scripts, ids: Sequence[str]) -> Steps[list[str]]:
        moved = yield from one(scripts.requeue(ids, due))
        return ["requeued" if each else "left" for each in moved]

    return act


def each(core: Core, act: Act, ids: Sequence[str]) -> Steps[dict[str, str]]:
    """Do it with these messages; return the word for each."""
    yield from core.opened()
    told: dict[str, str] = {}
    unique = list(dict.fromkeys(ids))
    for scripts, positions in core.by_shard(range(len(unique)), unique.__getitem__):
        for start in range(0, len(positions), MAX_MOVED):
            some = [unique[position] for position in positions[start : start + MAX_MOVED]]
            told |= zip(some, (yield from act(scripts, some)), strict=True)
    return told
