"""Count how many messages fall due when, and keep a history of the counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from delayq.model.queue_stats import Counts, QueueStats, Upcoming, check_buckets
from delayq.model.sample import DAY_MS, HOUR_MS, Sample, parse
from delayq.model.units import Seconds, from_ms, timestamp_ms
from delayq.operations.inspect import summed
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.replies import DueCounts


def upcoming(context: QueueContext, window: Seconds, bucket: Seconds) -> Operation[list[Upcoming]]:
    """Count the messages that fall due within `window`, in buckets, over all shards."""
    count, bucket_ms = check_buckets(window, bucket)
    shards = yield from context.opened()
    results: list[DueCounts] = [
        unwrap(each) for each in (yield [scripts.upcoming(bucket_ms, count) for scripts in shards])
    ]
    now_ms = results[0].now_ms
    return [
        Upcoming(
            starts_at=from_ms(now_ms + i * bucket_ms),
            ends_at=from_ms(now_ms + (i + 1) * bucket_ms),
            pending=sum(fires.pending[i] for fires in results),
            retry=sum(fires.retry[i] for fires in results),
        )
        for i in range(count)
    ]


def sample(context: QueueContext) -> Operation[bool]:
    """Store the counts of this minute unless they are stored already; return whether any were added."""
    shards = yield from context.opened()
    if not context.is_open:
        return False
    added: list[int] = [unwrap(each) for each in (yield [shard.sample(QueueStats.COUNTERS) for shard in shards])]
    return any(added)


def samples(context: QueueContext, since: dt.datetime | None) -> Operation[list[Sample]]:
    """Read the stored samples, oldest first: one for each ten minutes, and one a minute where they exist."""
    since_ms = 0 if since is None else max(0, timestamp_ms(since, "since"))
    shards = yield from context.opened()
    calls: list[Any] = [shards[0].stats()]
    for shard in shards:
        keys = shard.keys
        calls += [shard.samples(keys.samples_minute, since_ms), shard.samples(keys.samples_ten, since_ms)]
    found, *kept = map(unwrap, (yield calls))
    tens = _whole(kept[1::2], max(since_ms, found.now_ms - DAY_MS), found.now_ms)
    minutes = _whole(kept[::2], max(since_ms, found.now_ms - HOUR_MS), found.now_ms)
    first = min(minutes, default=found.now_ms + 1)
    both = {at: shards for at, shards in tens.items() if at < first} | minutes
    read = [Sample(from_ms(at), summed(context.name, counted)) for at, counted in sorted(both.items())]
    return list({each.stats.at: each for each in read}.values())  # one sample may be both the minute's and the ten's


def _whole(kept: Sequence[list[tuple[int, str]]], from_: int, to: int) -> dict[int, list[Counts]]:
    """Return the samples in a span of time that all shards have, by their times, ms."""
    found: dict[int, list[Counts]] = {}
    for at, text in (each for shard in kept for each in shard):
        if from_ <= at <= to and (counts := parse(text)):
            found.setdefault(at, []).append(counts)
    return {at: of_all for at, of_all in found.items() if len(of_all) == len(kept)}
