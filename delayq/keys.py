"""The names of a queue's keys in Redis.

All keys of a queue carry one hash tag, so that a Redis Cluster keeps them on one server:

    delayq:{emails}:pending       the first shard, and where the queue itself is recorded
    delayq:{emails#1}:pending     the second shard, where there is more than one
"""

from __future__ import annotations

import zlib
from typing import Final, Literal, get_args

from delayq.names import check_prefix, check_queue_name

State = Literal["pending", "ready", "unack", "retry", "dead", "garbage"]
"""Where a message is. Each is a sorted set, and a message is in exactly one."""

STATES: Final[tuple[State, ...]] = get_args(State)


class QueueKeys:
    """The keys of one shard of a queue."""

    def __init__(self, prefix: str, name: str, shard: int = 0) -> None:
        tag = check_queue_name(name) + (f"#{shard}" if shard else "")
        base = f"{check_prefix(prefix)}:{{{tag}}}:"
        self.pending = base + "pending"
        self.ready = base + "ready"
        self.unack = base + "unack"
        self.retry = base + "retry"
        self.dead = base + "dead"
        self.garbage = base + "garbage"
        self.attempts = base + "attempts"
        self.errors = base + "errors"
        self.reasons = base + "reasons"
        self.cancelled = base + "cancelled"
        self.bell = base + "bell"
        self.timer = base + "timer"
        self.stats = base + "stats"
        self.meta = base + "meta"
        self.rate = base + "rate"
        self.schedules = base + "schedules"
        self.armed = base + "armed"
        self.slots = base + "slots"
        self.waiting = base + "waiting"
        self.parked = base + "parked"
        self.consumers = base + "consumers"
        self.crew = base + "crew"
        self.samples_minute = base + "samples:minute"
        self.samples_ten = base + "samples:ten"
        self.events = base + "events"
        self.message_prefix = base + "msg:"
        self.unique_prefix = base + "unique:"

    def message(self, message_id: str) -> str:
        """Return the key of a message's envelope."""
        return self.message_prefix + message_id

    def unique(self, message_id: str) -> str:
        """Return the key that reserves an id."""
        return self.unique_prefix + message_id

    def state(self, state: State) -> str:
        """Return the key of a state's sorted set."""
        return str(getattr(self, state))


def shard_of(message_id: str, shards: int) -> int:
    """Return the number of the shard, 0 to ``shards - 1``, that holds a message."""
    return zlib.crc32(message_id.encode(errors="surrogateescape")) % shards if shards > 1 else 0
