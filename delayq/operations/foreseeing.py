"""Foreseeing: how much falls due when."""

from __future__ import annotations

from delayq.calls import Steps, expect
from delayq.errors import InvalidInput
from delayq.operations.core import Core
from delayq.scripts import Fires
from delayq.stats import Upcoming
from delayq.times import Seconds, from_ms, milliseconds

MAX_BUCKETS = 500


def upcoming(core: Core, window: Seconds, bucket: Seconds) -> Steps[list[Upcoming]]:
    """Count what falls due within `window`, in buckets; with several shards, over all of them."""
    count, bucket_ms = check_buckets(window, bucket)
    shards = yield from core.opened()
    results: list[Fires] = [expect(each) for each in (yield [scripts.upcoming(bucket_ms, count) for scripts in shards])]
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


def check_buckets(window: Seconds, bucket: Seconds) -> tuple[int, int]:
    """Return how many buckets there are, and the length of one, ms.

    Raises:
        InvalidInput: either is out of range, or there are too many.
    """
    window_ms, bucket_ms = milliseconds(window, "window"), milliseconds(bucket, "bucket")
    if bucket_ms < 1:
        raise InvalidInput(f"bucket {bucket!r} is not 0.001 seconds or more")
    count = -(-window_ms // bucket_ms)
    if not 1 <= count <= MAX_BUCKETS:
        raise InvalidInput(
            f"a window {window!r} in buckets of {bucket!r} makes {count} of them, not 1 to {MAX_BUCKETS}"
        )
    return count, bucket_ms
