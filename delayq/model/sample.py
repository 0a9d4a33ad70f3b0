"""The counts of a queue, minute by minute, as stored in Redis.

A sample is a text of six parts separated by semicolons, each with words separated by spaces: when it was counted and
since when the queue was paused; the sizes of the structures; their lowest scores; the counters in the order of
`QueueStats.COUNTERS`, after which new ones may be added; the buckets of lateness and handler times, as in
``l3:12 t5:1``.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from delayq.model.placement import STATES
from delayq.model.queue_stats import Counts, QueueStats
from delayq.model.text import decode_count

HOUR_MS, DAY_MS = 3_600_000, 86_400_000

_KINDS = {"l": "late", "t": "took"}


class Sample(msgspec.Struct, frozen=True):
    """The counts of a queue in one of the last minutes.

    Attributes:
        at: the start of the minute, or of the ten minutes, of which it is the first sample.
        stats: the counts at that time, taken at `stats.at`.
    """

    at: dt.datetime
    stats: QueueStats


def parse(text: str) -> Counts | None:
    """Read a sample; None for a text that delayq did not write."""
    try:
        now, paused, sizes, heads, counters, times, *due = text.split(";")[:7]
        counts = dict(zip(STATES, map(decode_count, sizes.split(" ")), strict=False))  # older samples lack held
        lowest = {state: float(score) for state, score in zip(STATES, heads.split(" "), strict=False) if score}
        values = dict(zip(QueueStats.COUNTERS, map(decode_count, counters.split(" ")), strict=False))
        for word in times.split():
            bucket, _, count = word.partition(":")
            values[f"{_KINDS[bucket[0]]}:{int(bucket[1:])}"] = decode_count(count)
        waiting = map(decode_count, due[0].split(" ")) if due else ()  # older samples lack it
        return Counts(int(now), int(paused) if paused else None, counts, lowest, values, *waiting)
    except (ValueError, KeyError):
        return None
