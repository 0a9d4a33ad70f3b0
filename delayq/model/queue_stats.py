"""A queue's counts, and figures derived from them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import msgspec

from delayq.errors import InvalidInput
from delayq.model.placement import STATES, State
from delayq.model.task_runs import TaskRuns
from delayq.model.units import MAX_TIME_MS, Seconds, milliseconds, span_ms

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""The time of counts that were never taken."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a queue at one instant (with several shards, one instant for each).

    The first ten count the messages that exist now: `scheduled`, `due` and `retrying` by what they wait for, the
    others by where they are in Redis. The rest are totals since the queue was created.

    Attributes:
        at: the server's clock when this was counted.
        scheduled: new messages that are not due yet.
        due: messages that are due and wait for a consumer, wherever they are.
        retrying: messages whose next attempt is not due yet.
        held: messages that wait for a group to end.
        sent: new messages; one that replaced another is counted as `replaced` instead.
        promoted: moves from pending to ready.
        delivered: deliveries, repeated ones included.
        released: deliveries that were handed back without using a retry.
        held_back: released deliveries that had to wait for others with their key to end.
        lease_lost: deliveries whose lease ran out.
        died: moves to dead.
        collected: payload keys deleted by the garbage collector.
        adjusted: messages that the doctor's repairs removed from the counts (or added, if negative).
        paused_since: when the queue was paused, or None.
        paused_until: when the pause ends by itself (with shards, the latest such time), or None. Samples lack it.
        next_due_at: the earliest due time in pending, or None.
        oldest_due_at: the earliest due time of a message that is due and not handed out, or None.
        lateness: a histogram: the exclusive upper end of a bucket, in ms, and the number of deliveries in it.
        handler_time: a histogram of the run times of handlers, or batches. Consumers report it every 10 s.
        slots_missed: slots of schedules for which nothing ran, as no consumer was running in time. Samples lack it.
        tasks: how the runs of tasks ended, by the name of the task: the first 100 of each shard, and the others
            together as "other". Consumers report them every 10 s; one that is killed does not report its last ones, and
            a report whose reply is lost may count twice. Samples lack them.
    """

    queue: str
    at: dt.datetime = EPOCH
    pending: int = 0
    ready: int = 0
    unack: int = 0
    retry: int = 0
    dead: int = 0
    garbage: int = 0
    held: int = 0
    scheduled: int = 0
    due: int = 0
    retrying: int = 0
    sent: int = 0
    replaced: int = 0
    promoted: int = 0
    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    held_back: int = 0
    lease_lost: int = 0
    died: int = 0
    requeued: int = 0
    rescheduled: int = 0
    expired: int = 0
    cancelled: int = 0
    purged: int = 0
    collected: int = 0
    adjusted: int = 0
    paused_since: dt.datetime | None = None
    paused_until: dt.datetime | None = None
    next_due_at: dt.datetime | None = None
    oldest_due_at: dt.datetime | None = None
    lateness: dict[int, int] = {}
    handler_time: dict[int, int] = {}
    slots_missed: int = 0
    tasks: dict[str, TaskRuns] = {}

    PHASES: ClassVar[tuple[str, ...]] = ("scheduled", "due", "running", "retrying", "dead")
    COUNTERS: ClassVar[tuple[str, ...]] = (
        *("sent", "replaced", "promoted", "delivered", "acked", "nacked", "released", "lease_lost", "died"),
        *("requeued", "rescheduled", "expired", "cancelled", "purged", "collected", "adjusted", "held_back"),
    )

    def states(self) -> dict[State, int]:
        """Return how many messages are in each state, without `held` if none is."""
        return {state: getattr(self, state) for state in STATES if state != "held" or self.held}

    @property
    def running(self) -> int:
        """Messages that are handed out and not settled."""
        return self.unack

    @property
    def inside(self) -> int:
        """Messages that are waiting, held for a group, running or dead."""
        return self.pending + self.ready + self.unack + self.retry + self.dead + self.held

    @property
    def missing(self) -> int:
        """Messages that the counts do not account for; anything but 0 is an error."""
        return self.sent - self.acked - self.cancelled - self.expired - self.purged - self.adjusted - self.inside

    def lateness_quantile(self, share: float) -> float | None:
        """Return an upper bound, in seconds, on the lateness of `share` (0 to 1) of all deliveries; None if none."""
        return quantile(self.lateness, share)

    def handler_time_quantile(self, share: float) -> float | None:
        """Return an upper bound, in seconds, on the run time of `share` (0 to 1) of all handlers; None if none."""
        return quantile(self.handler_time, share)


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages fall due in a span of time.

    Attributes:
        starts_at: the start, inclusive.
        ends_at: the end, exclusive.
        pending: messages due for their first delivery, or sent back to wait.
        retry: messages due for their next attempt.
    """

    starts_at: dt.datetime
    ends_at: dt.datetime
    pending: int
    retry: int

    @property
    def count(self) -> int:
        """Both together."""
        return self.pending + self.retry


MAX_BUCKETS = 500  # of upcoming messages


def check_buckets(window: Seconds, bucket: Seconds) -> tuple[int, int]:
    """Return the number of buckets and the length of one, ms.

    Raises:
        InvalidInput: either is out of range, or there are too many.
    """
    window_ms, bucket_ms = milliseconds(window, "window"), span_ms(bucket, "bucket")
    if bucket_ms < 1:
        raise InvalidInput(f"bucket {bucket!r} is not 0.001 seconds or more")
    count = -(-window_ms // bucket_ms)
    if not 1 <= count <= MAX_BUCKETS:
        raise InvalidInput(f"window {window!r} in buckets of {bucket!r} makes {count} buckets, not 1 to {MAX_BUCKETS}")
    return count, bucket_ms


MOST_BUCKETS = MAX_TIME_MS.bit_length() + 1


def buckets(counters: Mapping[str, int], kind: str) -> dict[int, int]:
    """Read a histogram, "late" or "took", from the counters: bucket b holds times from 2^(b-1) up to 2^b ms.

    Other names that begin like those of buckets come from other programs.
    """
    start = f"{kind}:"
    return {2**b: counters[name] for b in range(MOST_BUCKETS) if (name := f"{start}{b}") in counters}


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """Return an upper bound, in seconds, on `share` (0 to 1) of the values in a histogram in milliseconds."""
    left = share * sum(histogram.values())
    for upper, count in sorted(histogram.items()):
        left -= count
        if left <= 0:
            return upper / 1000
    return None


class Counts(NamedTuple):
    """The data that `stats` reads."""

    now_ms: int
    paused_ms: int | None
    counts: dict[State, int]
    heads_ms: dict[State, float]
    counters: dict[str, int]
    pending_due: int = 0
    retry_due: int = 0
    paused_until_ms: int | None = None
