"""Which features the programs combined: each pair, and in how many programs both took effect."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

FEATURES = (
    *("rate", "concurrency", "key limit", "unique_for", "replace", "replace while it runs", "expiry", "chain"),
    *("schedule", "shards", "pause", "priorities", "batch", "redrive", "edit", "dead retention", "crash", "lost reply"),
    *("group", "max_length", "result", "unknown task"),
)
REFUSED = {frozenset(("shards", limit)) for limit in ("rate", "concurrency", "key limit", "max_length")}
"""Pairs that delayq refuses: see `test_queue_with_shards_refuses_limits`."""

PAIRS = {frozenset(pair) for pair in combinations(FEATURES, 2)} - REFUSED


class Met:
    """In how many programs each pair took effect."""

    def __init__(self) -> None:
        self.pairs: Counter[frozenset[str]] = Counter()

    def note(self, features: set[str]) -> None:
        """Note what took effect in a program."""
        self.pairs.update(map(frozenset, combinations(sorted(features), 2)))

    def missing(self) -> list[str]:
        """The pairs that never took effect together."""
        return sorted(" + ".join(sorted(pair)) for pair in PAIRS if not self.pairs[pair])

    def __str__(self) -> str:
        rows = [[f"{name:22}", *(self._count(name, other) for other in FEATURES)] for name in FEATURES]
        numbers = "".join(f"{number:6}" for number in range(1, len(FEATURES) + 1))
        lines = [f"{number:2} {row[0]}{''.join(row[1:])}" for number, row in enumerate(rows, 1)]
        return "\n".join([f"{'':25}{numbers}", *lines])

    def _count(self, one: str, other: str) -> str:
        pair = frozenset((one, other))
        return f"{'' if one == other else '-' if pair in REFUSED else self.pairs[pair]:>6}"
