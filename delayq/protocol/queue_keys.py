"""The names of a queue's keys in Redis.

All keys of a shard have the same hash tag, so that a Redis Cluster keeps them on one server:

    delayq:{emails}:pending       the first shard, where the queue itself is recorded
    delayq:{emails#1}:pending     the second shard, if there is more than one
"""

from __future__ import annotations

from delayq.model.placement import MESSAGE, PROGRESS, RESULT, STATES, UNIQUE, State, key_base


class QueueKeys:
    """The keys of one shard of a queue."""

    def __init__(self, prefix: str, name: str, shard: int = 0) -> None:
        base = key_base(prefix, name, shard)
        self.pending = base + "pending"
        self.ready = base + "ready"
        self.unack = base + "unack"
        self.retry = base + "retry"
        self.dead = base + "dead"
        self.garbage = base + "garbage"
        self.held = base + "held"
        self.members = base + "members"
        self.groups = base + "groups"
        self.rosters = base + "rosters"
        self.attempts = base + "attempts"
        self.errors = base + "errors"
        self.reasons = base + "reasons"
        self.cancelled = base + "cancelled"
        self.stops = base + "stops"
        self.bell = base + "bell"
        self.timer = base + "timer"
        self.watch = base + "watch"
        self.removed = base + "removed"
        self.stats = base + "stats"
        self.meta = base + "meta"
        self.rate = base + "rate"
        self.replaced = base + "replaced"
        self.schedules = base + "schedules"
        self.armed = base + "armed"
        self.slots = base + "slots"
        self.waiting = base + "waiting"
        self.parked = base + "parked"
        self.consumers = base + "consumers"
        self.reports = base + "crew"  # those of consumers; the key keeps its first name
        self.samples_minute = base + "samples:minute"
        self.samples_ten = base + "samples:ten"
        self.events = base + "events"
        self.finished = base + "finished"
        self.message_prefix = base + MESSAGE
        self.result_prefix = base + RESULT
        self.progress_prefix = base + PROGRESS
        self.unique_prefix = base + UNIQUE
        self.claim_prefix = base + "claim:"

    def others(self) -> list[str]:
        """Return all keys with a fixed name that hold no messages, but `removed`; the rest expire."""
        apart = {
            self.removed,
            self.message_prefix,
            self.unique_prefix,
            self.claim_prefix,
            self.result_prefix,
            self.progress_prefix,
            *map(self.state, STATES),
        }
        return [key for key in vars(self).values() if key not in apart]

    def message(self, message_id: str) -> str:
        """Return the key of a message's envelope."""
        return self.message_prefix + message_id

    def unique(self, message_id: str) -> str:
        """Return the key that reserves an id."""
        return self.unique_prefix + message_id

    def result(self, message_id: str) -> str:
        """Return the key of the record of a message's task."""
        return self.result_prefix + message_id

    def progress(self, message_id: str) -> str:
        """Return the key of what a message's handler has reported."""
        return self.progress_prefix + message_id

    def claim(self, consumer: str, run: str) -> str:
        """Return the key of the last claim of a consumer's run: two consumers may have the same name."""
        return self.claim_prefix + run + consumer

    def state(self, state: State) -> str:
        """Return the key of a state's sorted set."""
        return str(getattr(self, state))
