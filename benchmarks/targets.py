"""delayq's targets, compared with the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.programs import OWN

Results = dict[str, Any]
GROWTH = 0.02  # of a consumer's memory: what an allocator may take between two readings
MS_OF_A_SCRIPT, MS_OF_A_CALL = 5, 2


@dataclass(frozen=True)
class TargetVerdict:
    """A target, and what was measured.

    Attributes:
        value: the figure; None if it was not measured.
        at_least: whether `bound` is a minimum; otherwise it is a maximum.
        unit: for people.
    """

    name: str
    value: float | None
    bound: float
    at_least: bool
    unit: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the target is met; None if it was not measured."""
        if self.value is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return {True: "pass", False: "MISS", None: "not measured"}[self.passed]

    @property
    def shown(self) -> tuple[str, str]:
        """The figure and the bound, with units."""
        unit = f" {self.unit}" if self.unit else ""
        value = "–" if self.value is None else f"{_number(self.value)}{unit}"
        return value, f"{'≥' if self.at_least else '≤'} {_number(self.bound)}{unit}"


def verdicts(results: Results) -> list[TargetVerdict]:
    """Return all targets in order, with the results."""
    return [*_rates(results), *_lateness(results), *_costs(results), *_backlog(results), *_growth(results)]


def median(results: Results, workload: str, peer: str, figure: str = "per_second") -> float | None:
    """Return a peer's figure; None if it was not measured."""
    found: float | None = _at(results, "workloads", workload, peer, "figures", figure, "median")
    return found


def _rates(results: Results) -> Iterator[TargetVerdict]:
    def rate(name: str, key: str = "per_second.median") -> float | None:
        found: float | None = _at(results, "own", "rates", name, *key.split("."))
        return found

    yield TargetVerdict("send in bulk", median(results, "send_bulk", OWN), 150_000, True, "/s")
    yield TargetVerdict(*_times_best_python(results, "send_one", "send one by one"), 1.3, True, "×")
    yield TargetVerdict("send from 8 threads", rate("threads_8"), 60_000, True, "/s")
    yield TargetVerdict("send from 64 threads", rate("threads_64"), 60_000, True, "/s")
    yield TargetVerdict("drain", median(results, "drain", OWN), 60_000, True, "/s")
    yield TargetVerdict("drain, relative to BullMQ on Node", _times(results, "drain", "bullmq_node"), 2, True, "×")
    yield TargetVerdict(*_times_best_python(results, "drain", "drain"), 10, True, "×")
    yield TargetVerdict("receive and ack by 500", rate("pull"), 100_000, True, "/s")
    yield TargetVerdict("receive and ack, relative to the bare scripts", rate("pull", "ratio"), 0.85, True)
    for name in ("publish", "poll", "ack"):
        ratio = _at(results, "own", "topics", name, "ratio")
        yield TargetVerdict(f"topics: {name}, relative to redis-py's own commands", ratio, 0.7, True)
    ratio = _at(results, "own", "functions", "tasks", "ratio")
    yield TargetVerdict("consume tasks, relative to a plain handler", ratio, 0.9, True)
    yield TargetVerdict(
        "tables: write, relative to plain Python with the same script",
        _at(results, "own", "tables", "write_of_plain"),
        0.8,
        True,
    )
    drained = _at(results, "own", "consumers")
    yield TargetVerdict(
        "Redis' core with two consumers", _percent(_at(drained, "2", "redis_core_share")), 95, True, "%"
    )
    one, two = (_at(drained, count, "per_second") for count in ("1", "2"))
    yield TargetVerdict("two consumers, relative to one", two / one if one else None, 1.7, True, "×")


def _lateness(results: Results) -> Iterator[TargetVerdict]:
    for name, figure, of_runs, bound, unit in (
        ("lateness, 50%", "p50_ms", "median", 1.2, "ms"),
        ("lateness, 99%", "p99_ms", "median", 3, "ms"),
        ("lateness, maximum", "max_ms", "max", 20, "ms"),
        ("delivered early", "early", "max", 0, ""),
    ):
        late = _at(results, "workloads", "lateness", OWN, "figures", figure, of_runs)
        yield TargetVerdict(name, late, bound, False, unit)
    for figure in ("p50_ms", "p99_ms"):
        own, celery = (median(results, "lateness", peer, figure) for peer in (OWN, "celery"))
        ratio = own / celery if own is not None and celery else None
        yield TargetVerdict(f"lateness, {figure[1:3]}%, relative to Celery", ratio, 1.2, False, "×")
    yield TargetVerdict("lateness at 1,000/s, 99%", median(results, "lateness_1000", OWN, "p99_ms"), 5, False, "ms")


def _costs(results: Results) -> Iterator[TargetVerdict]:
    idle, own = _at(results, "own", "idle_own"), _at(results, "own", "cost")
    yield TargetVerdict("an idle fleet", _at(idle, "fleet", "commands_per_second"), 30, False, "commands/s")
    yield TargetVerdict("an idle consumer", _at(idle, "one", "cpu_percent"), 0.5, False, "% of a core")
    fleet = _at(results, "own", "fleet")
    for name, figure, bound in (("50%", "p50_ms", 1.2), ("99%", "p99_ms", 3), ("maximum", "max_ms", 20)):
        yield TargetVerdict(f"lateness with an idle fleet, {name}", _at(fleet, figure), bound, False, "ms")
    yield TargetVerdict("memory of a waiting message", median(results, "memory", OWN, "bytes"), 350, False, "bytes")
    yield TargetVerdict("Redis CPU time per message", _at(own, "redis_cpu_us"), 15, False, "µs")
    yield TargetVerdict("round trips of a single message", _at(own, "lone_trips"), 5, False)
    yield TargetVerdict("round trips per message in bulk", _at(own, "trips"), 0.1, False)


def _backlog(results: Results) -> Iterator[TargetVerdict]:
    for key, planned in (("backlog", 1_000_000), ("backlog_10m", 10_000_000)):
        found = _at(results, "own", key)
        waiting = f"{_at(found, 'waiting') or planned:,}"
        calls = _at(found, "calls") or {}
        yield TargetVerdict(
            f"drain with {waiting} waiting, relative to an empty queue", _at(found, "of_empty", "drain"), 0.9, True
        )
        beside, alone = _at(found, "rates", "send_bulk", "ratio"), _at(results, "own", "rates", "send_bulk", "ratio")
        kept = beside / alone if beside and alone else None
        yield TargetVerdict(
            f"send in bulk with {waiting} waiting, relative to what the bare scripts keep", kept, 1, True, "×"
        )
        slowest = max((each["p99_ms"] for each in calls.values()), default=None)
        yield TargetVerdict(f"slowest call with {waiting} waiting, 99%", slowest, MS_OF_A_CALL, False, "ms")
        longest = _at(found, "longest_script", "ms")
        yield TargetVerdict(f"longest script with {waiting} waiting", longest, MS_OF_A_SCRIPT, False, "ms")


def _growth(results: Results) -> Iterator[TargetVerdict]:
    found = _at(results, "own", "growth")
    early, late = _at(found, "bytes_at_10_percent"), _at(found, "bytes_at_the_end")
    grown = late / early - 1 if early and late else None
    yield TargetVerdict("growth of a consumer's memory", _percent(grown), GROWTH * 100, False, "%")


def _times(results: Results, workload: str, peer: str) -> float | None:
    own, other = median(results, workload, OWN), median(results, workload, peer)
    return own / other if own is not None and other else None


def _times_best_python(results: Results, workload: str, what: str) -> tuple[str, float | None]:
    """Return the label of the comparison, and the ratio."""
    peers = results.get("peers", {})
    others = [key for key, about in peers.items() if key != OWN and about["language"] == "Python"]
    ratios = {key: ratio for key in others if (ratio := _times(results, workload, key)) is not None}
    if not ratios:
        return f"{what}, relative to the fastest Python peer", None
    best: Callable[[str], float] = ratios.__getitem__
    key = min(ratios, key=best)
    return f"{what}, relative to {peers[key]['peer']}, the fastest in Python", ratios[key]


def _at(found: Any, *path: str) -> Any:
    """Return the value at the end of a path of keys; None if the path is incomplete."""
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.3g}"
