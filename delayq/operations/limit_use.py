"""How much of a queue's limits is in use, and what the limits hold back."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from delayq.errors import ServerError, ServerUnreachable
from delayq.model.configuration import Configuration
from delayq.model.rate_text import parse_rate
from delayq.model.schedule import LATE_MS
from delayq.model.units import from_ms
from delayq.operations.inspect import summed
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import QueueCommands

MOST_KEYS = 50
"""The most keys whose messages are counted, for running and for waiting messages."""

NO_MESSAGE = ""


class KeyUse(NamedTuple):
    """How much of a key's limit is in use.

    Attributes:
        in_use: messages that are running, or were released and start next.
        waiting: messages that wait for these; cancelled ones count until a consumer finds them.
    """

    key: str
    in_use: int
    waiting: int


class LimitUse(NamedTuple):
    """The use of a queue's limits at one moment.

    Attributes:
        at: the server's clock.
        limits: the stored settings of the queue.
        is_paused: whether a pause holds back everything anyway.
        due: messages that are due and not handed out.
        running: messages that are handed out and count towards `concurrency`.
        handed_out: deliveries in the last period of the rate.
        opens_at: when the rate allows another delivery after those it allows now; None if unknown.
        waiting: messages that wait for others with their key.
        length: messages that count towards `max_length`; 0 without one.
        keys: the use of each key, those that hold back most messages first; None if the Redis user may not read them.
        has_more: whether there are keys that were not counted.
    """

    at: dt.datetime
    limits: Configuration
    is_paused: bool
    due: int
    running: int
    handed_out: int
    opens_at: dt.datetime | None
    waiting: int
    length: int
    keys: tuple[KeyUse, ...] | None
    has_more: bool

    @property
    def most(self) -> int:
        """Deliveries that the rate allows in its period; 0 without a rate."""
        return parse_rate(self.limits.rate)[0] if self.limits.rate else 0

    @property
    def period(self) -> float:
        """The length of the rate's period in seconds; 0 without a rate."""
        return parse_rate(self.limits.rate)[1] / 1000 if self.limits.rate else 0

    @property
    def is_spent(self) -> bool:
        """Whether the rate allows no delivery now."""
        return bool(self.limits.rate) and self.handed_out >= self.most

    @property
    def is_full(self) -> bool:
        """Whether `concurrency` allows no delivery now."""
        return self.limits.concurrency is not None and self.running >= self.limits.concurrency


def limit_use(context: QueueContext) -> Operation[LimitUse | None]:
    """Return the use of the limits; None for a queue without limits. The cost does not grow with the queue."""
    scripts = (yield from context.opened())[0]  # a queue with limits has one shard
    limits = yield from execute(scripts.configuration())
    if not (limits.rate or limits.concurrency or limits.concurrency_per_key or limits.max_length):
        return None
    replies: list[Any] = yield [scripts.why(NO_MESSAGE), scripts.stats(), scripts.usage(LATE_MS)]
    standing, counted, usage = map(unwrap, replies)
    keys, has_more = (yield from _keys(scripts)) if limits.concurrency_per_key else ((), False)
    return LimitUse(
        at=from_ms(standing.now_ms),
        limits=limits,
        is_paused=standing.paused_ms is not None,
        due=summed(context.name, [counted]).due,
        running=usage.running,
        handed_out=usage.handed_out,
        opens_at=None if standing.opens_ms is None else from_ms(standing.opens_ms),
        waiting=usage.key_waiting,
        length=usage.length,
        keys=keys,
        has_more=has_more,
    )


def _keys(scripts: QueueCommands) -> Operation[tuple[tuple[KeyUse, ...] | None, bool]]:
    """Count the messages of keys, and return whether there are more keys; None if the server refuses."""
    indices = (scripts.keys.slots, scripts.keys.waiting)
    try:
        replies = yield [scripts.held_keys(index, "", MOST_KEYS + 1) for index in indices]
        listed: list[list[str]] = [unwrap(each) for each in replies]
        names = sorted({name for each in listed for name in each[:MOST_KEYS]})
        counts = [unwrap(each) for each in (yield [_count(index, name) for name in names for index in indices])]
    except ServerUnreachable:
        raise
    except ServerError:  # a user who may read the queue may lack the right to this
        return None, False
    found = [KeyUse(name, *counts[2 * i : 2 * i + 2]) for i, name in enumerate(names)]
    found.sort(key=lambda each: (-each.waiting, -each.in_use))
    return tuple(found), any(len(each) > MOST_KEYS for each in listed)


def _count(index: str, key: str) -> Command[int]:
    """Count the members of an index that begin with a key and a zero byte."""
    name = key.encode(errors="surrogateescape")
    return Command(index, ("ZLEXCOUNT", index, b"[" + name + b"\0", b"(" + name + b"\1"), int)
