"""Trim a topic: drop records that it does not need, a bounded number in each call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from delayq.errors import InvalidInput
from delayq.model.positions import Position, bound
from delayq.model.record import Record, Trimmed, TrimPlan, text_of
from delayq.operations.topics.group_admin import MAX_LAG_CALLS, count_between
from delayq.operations.topics.group_read import by_shard
from delayq.operations.topics.topic_context import TopicContext, check_length, cut
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import MAX_RECORDS


def trim(context: TopicContext, max_length: int | None, min_id: Position | None, approximate: bool) -> Operation[int]:
    """Keep the newest `max_length` records (of each shard), or those from `min_id` on; return how many were dropped."""
    if (max_length is None) == (min_id is None):
        raise InvalidInput(f"max_length={max_length!r} and min_id={min_id!r} were given: give one of them")
    least = None if min_id is None else bound(min_id, "min_id")
    if least is not None and not least[0].isdigit():
        raise InvalidInput(
            f"min_id {min_id!r} is not an id of a record: give the id of the oldest record to keep, or a time"
        )
    check_length(max_length)
    how, limit = ("MAXLEN", str(max_length)) if least is None else ("MINID", str(least))
    dropped = 0
    for scripts in (yield from context.opened()):
        dropped += (yield from _drop_all(scripts.trim(how, limit, exact=not approximate)))[0]
    return dropped


def foresee(context: TopicContext, plan: TrimPlan) -> Operation[tuple[int, bool]]:
    """Count what a trim would drop (by time, up to 10,000 in each shard), and whether there may be more."""
    count, at_least = 0, False
    for scripts in (yield from context.opened()):
        if plan.length is not None:
            count += max(0, (yield from execute(scripts.length())) - plan.length)
        else:
            found, more = yield from count_between(scripts, "0-0", f"({plan.since_ms}-0", MAX_LAG_CALLS)
            count, at_least = count + found, at_least or more
    return count, at_least


class TrimSweep:
    """Drops the oldest records of a topic, up to 10,000 a step.

    Attributes:
        count: how many it has dropped.
        done: whether there is nothing left to drop.
    """

    def __init__(self, plan: TrimPlan) -> None:
        self.count = 0
        self.done = False
        self._how = ("MAXLEN", plan.length) if plan.length is not None else ("MINID", plan.since_ms)
        self._shard = 0

    def step(self, context: TopicContext) -> Operation[int]:
        """Drop some of them; return the total so far."""
        shards = yield from context.opened()
        how, bound = self._how
        dropped, more = yield from execute(shards[self._shard].trim(how, str(bound), exact=True))
        self.count += dropped
        self._shard += not more
        self.done = self._shard >= len(shards)
        return self.count


def _drop_all(command: Command[list[Any]]) -> Operation[list[Any]]:
    """Repeat a command that drops a page until nothing is left; return its last reply, with the total in front."""
    total, reply = 0, [0, 1]
    while reply[-1]:
        reply = yield from execute(command)
        total += reply[0]
    return [total, *reply[1:]]


def delete(context: TopicContext, given: Record | str | Iterable[Record | str]) -> Operation[int]:
    """Delete single records; return how many were there; raises InvalidInput for a ledger."""
    if context.is_packed:
        raise InvalidInput(
            f"{context.name} is the ledger of a queue, whose entries hold several events: trim it instead"
        )
    yield from context.opened()
    calls = [
        scripts.delete(part) for (scripts, _), ids in by_shard(context, given).items() for part in cut(ids, MAX_RECORDS)
    ]
    return sum(map(unwrap, (yield calls))) if calls else 0


def trim_acked(context: TopicContext) -> Operation[Trimmed]:
    """Drop records that every group has acked."""
    count, slowest, oldest = 0, None, None
    for scripts in (yield from context.opened()):
        dropped, group, needs, _ = yield from _drop_all(scripts.trim_acked())
        count += dropped
        if group and (slowest is None or (yield from execute(scripts.length()))):
            slowest, oldest = text_of(group), text_of(needs)
    return Trimmed(count, slowest, oldest)


def shrink(context: TopicContext) -> Operation[int]:
    """Keep the records added since the last call; return how many were dropped."""
    count = 0
    for scripts in (yield from context.opened()):
        count += (yield from _drop_all(scripts.shrink(context.name)))[0]
    return count
