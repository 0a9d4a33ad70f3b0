"""The counts on the tabs of a queue's pages."""

from __future__ import annotations

import asyncio

from delayq.aio import Queue
from delayq.model.queue_stats import QueueStats
from delayq.operations.schedules import count as count_schedules

TabCounts = dict[str, int]
"""Counts by the routes of the tabs; a tab with an unknown count has none."""


def known(stats: QueueStats, alive: int | None = None, schedules: int | None = None) -> TabCounts:
    """Return the counts that are not None.

    Args:
        stats: the stats of the queue, for messages that are not dead, and for dead letters.
        alive: the number of live consumers.
        schedules: the number of schedules, including paused and finished ones.
    """
    found = {"messages": stats.inside - stats.dead, "dead": stats.dead, "schedules": schedules, "consumers": alive}
    return {route: count for route, count in found.items() if count is not None}


async def schedules(queue: Queue) -> int:
    """Count the schedules, including paused and finished ones."""
    return await queue.execute(count_schedules)


async def count(queue: Queue) -> tuple[QueueStats, TabCounts]:
    """Return all counts; of consumers, only the 1,000 seen last are counted."""
    stats, consumers, many = await asyncio.gather(queue.stats(), queue.consumers(), schedules(queue))
    return stats, known(stats, sum(each.is_alive for each in consumers), many)
