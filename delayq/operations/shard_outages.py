"""Log the outages of single shards while the others continue."""

from __future__ import annotations

import math
import time

import msgspec

from delayq.log import log
from delayq.model.interval import Interval

TELL_AFTER_SECONDS = 1.0  # a node that was slow to answer, or whose replica takes over, is not worth a line
FIRST_PAUSE = 0.05  # seconds until a shard is asked again, in the first second: most often it was only slow
LATER_PAUSE = 1.0
TELL_SECONDS = 60.0  # a consumer with work on other shards would meet the same outage at each claim


class _Outage(msgspec.Struct):
    """The outage of one shard; `unlogged` counts how often it was met since it was last logged."""

    since: float
    is_logged: bool = False
    tell: Interval = msgspec.field(default_factory=lambda: Interval(TELL_SECONDS))
    unlogged: int = 0


class Outages:
    """Logs each shard's outage once it has lasted a second, every minute while it lasts, and when it is over.

    Args:
        labels: fields of the log lines: the queue or topic.
    """

    def __init__(self, **labels: str) -> None:
        self._labels = labels
        self._outages: dict[str, _Outage] = {}

    def met(self, shard: str, error: Exception) -> None:
        """Note that a shard, identified by the name of a key, did not respond."""
        outage = self._outages.get(shard)
        if outage is None:
            outage = self._outages[shard] = _Outage(time.monotonic())
        if time.monotonic() >= outage.since + TELL_AFTER_SECONDS and outage.tell.due():
            unlogged, outage.unlogged, outage.is_logged = outage.unlogged if outage.is_logged else 0, 0, True
            since = {"untold": unlogged} if unlogged else {}
            line = "shard unavailable"
            log.error(line, **self._labels, shard=shard, error=str(error), **since)
        else:
            outage.unlogged += 1

    def has(self, shard: str) -> bool:
        """Whether a shard did not respond to the last claim."""
        return shard in self._outages

    def pause(self) -> float:
        """Return for how many seconds one may wait before shards that did not respond are asked again."""
        if not self._outages:
            return math.inf
        began = max(outage.since for outage in tuple(self._outages.values()))
        return FIRST_PAUSE if time.monotonic() < began + TELL_AFTER_SECONDS else LATER_PAUSE

    def over(self, shard: str) -> None:
        """Note that a shard responded."""
        outage = self._outages.pop(shard, None) if self._outages else None
        if outage is not None and outage.is_logged:
            log.info("shard available again", **self._labels, shard=shard)
