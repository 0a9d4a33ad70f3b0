"""Log the outages of single shards while the others continue."""

from __future__ import annotations

from dataclasses import dataclass, field

from delayq.log import log
from delayq.model.interval import Interval

TELL_SECONDS = 60.0  # a consumer with work on other shards would meet the same outage at each claim


@dataclass
class _Outage:
    """The outage of one shard; `untold` counts how often it was met since it was last logged."""

    tell: Interval = field(default_factory=lambda: Interval(TELL_SECONDS))
    untold: int = 0


class Outages:
    """Logs each shard's outage when it begins, every minute while it lasts, and when it is over.

    Args:
        queue: the queue's name in log lines.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._outages: dict[str, _Outage] = {}

    def met(self, shard: str, error: Exception) -> None:
        """Note that a shard, identified by the name of a key, did not respond."""
        outage = self._outages.setdefault(shard, _Outage())
        if outage.tell.due():
            untold, outage.untold = outage.untold, 0
            since = {"untold": untold} if untold else {}
            line = "shard unavailable"
            log.error(line, queue=self._queue, shard=shard, error=str(error), **since)
        else:
            outage.untold += 1

    def over(self, shard: str) -> None:
        """Note that a shard responded."""
        if self._outages.pop(shard, None) is not None:
            log.info("shard available again", queue=self._queue, shard=shard)
