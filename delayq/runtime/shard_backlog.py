"""Outcomes for an unavailable shard: they wait for it, while the consumer serves the others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from delayq.model import outcome as oc

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds between two tries

D = TypeVar("D")


class _Waiting(Generic[D]):
    """The outcomes of one shard, and when to try them again, on the monotonic clock."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[D, oc.Outcome]] = []
        self.pause = FIRST_PAUSE
        self.until = 0.0


class ShardBacklog(Generic[D]):
    """The outcomes of messages on unavailable shards; each shard has a pause of its own, longer each time.

    Args:
        shard_of: returns the shard of a message.

    Attributes:
        shards: those that were unavailable lately, and their outcomes; empty if all have answered.
    """

    def __init__(self, shard_of: Callable[[D], Hashable]) -> None:
        self._shard_of = shard_of
        self.shards: dict[Hashable, _Waiting[D]] = {}

    def __len__(self) -> int:
        return sum(len(each.outcomes) for each in self.shards.values())

    def add(self, message: D, outcome: oc.Outcome) -> None:
        """Keep an outcome that could not be settled."""
        waiting = self.shards.setdefault(self._shard_of(message), _Waiting())
        if not waiting.outcomes:
            waiting.until = time.monotonic() + waiting.pause
            waiting.pause = min(LONGEST_PAUSE, waiting.pause * 2)
        waiting.outcomes.append((message, outcome))

    def due(self) -> list[tuple[D, oc.Outcome]]:
        """Take the outcomes whose pause is over."""
        found: list[tuple[D, oc.Outcome]] = []
        now = time.monotonic() if self.shards else 0.0
        for shard, waiting in tuple(self.shards.items()):
            if waiting.outcomes and waiting.until <= now:
                found += waiting.outcomes
                waiting.outcomes = []
            elif not waiting.outcomes and waiting.until + LONGEST_PAUSE < now:  # the last try has succeeded
                del self.shards[shard]
        return found

    def all(self) -> list[tuple[D, oc.Outcome]]:
        """Take all outcomes."""
        shards, self.shards = self.shards, {}
        return [each for waiting in shards.values() for each in waiting.outcomes]

    def waiting(self) -> list[tuple[D, oc.Outcome]]:
        """Return all outcomes."""
        return [each for waiting in self.shards.values() for each in waiting.outcomes]

    def left(self) -> float:
        """Return the seconds until the next outcomes are due; infinite if there are none."""
        untils = [waiting.until for waiting in self.shards.values() if waiting.outcomes]
        return max(0.0, min(untils) - time.monotonic()) if untils else math.inf
