"""Sampling: what was counted of a queue, kept for an hour by the minute and for a day by ten minutes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from delayq.calls import Steps, expect
from delayq.operations.core import Core
from delayq.operations.inspecting import summed
from delayq.samples import DAY_MS, HOUR_MS, Sample, parse
from delayq.scripts import Counts
from delayq.stats import QueueStats
from delayq.times import from_ms, timestamp_ms


def sample(core: Core) -> Steps[bool]:
    """Keep the counts of this minute, unless they are kept already; return whether any were added."""
    shards = yield from core.opened()
    if not core.is_open:
        return False
    added: list[int] = [expect(each) for each in (yield [shard.sample(QueueStats.COUNTERS) for shard in shards])]
    return any(added)


def samples(core: Core, since: dt.datetime | None) -> Steps[list[Sample]]:
    """Read what is kept, oldest first: by ten minutes, and by the minute where there are such samples."""
    since_ms = 0 if since is None else max(0, timestamp_ms(since, "since"))
    shards = yield from core.opened()
    calls: list[Any] = [shards[0].stats()]
    for shard in shards:
        keys = shard.keys
        calls += [shard.samples(keys.samples_minute, since_ms), shard.samples(keys.samples_ten, since_ms)]
    found, *kept = map(expect, (yield calls))
    tens = _whole(kept[1::2], max(since_ms, found.now_ms - DAY_MS), found.now_ms)
    minutes = _whole(kept[::2], max(since_ms, found.now_ms - HOUR_MS), found.now_ms)
    first = min(minutes, default=found.now_ms + 1)
    both = {at: shards for at, shards in tens.items() if at < first} | minutes
    read = [Sample(from_ms(at), summed(core.name, counted)) for at, counted in sorted(both.items())]
    return list({each.stats.at: each for each in read}.values())  # the first minute's count may be that of ten, too


def _whole(kept: Sequence[list[tuple[int, str]]], from_: int, to: int) -> dict[int, list[Counts]]:
    """Return the samples of a span of time that all shards have, by their times, ms."""
    found: dict[int, list[Counts]] = {}
    for at, text in (each for shard in kept for each in shard):
        if from_ <= at <= to and (counts := parse(text)):
            found.setdefault(at, []).append(counts)
    return {at: of_all for at, of_all in found.items() if len(of_all) == len(kept)}
