"""What a ledger costs: delayq with and without a ledger, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from benchmarks.own import opened
from benchmarks.paired import server_load
from benchmarks.paired.plan import RATES, BenchPlan
from benchmarks.paired.rates import Bench
from benchmarks.paired.samples import PairedRates, alternate
from benchmarks.server import BenchServer

NAMES = ("send_one", "send_bulk", "drain", "pull")
TITLES = {name: RATES[name][0] for name in NAMES}
KEPT = 10_000  # entries: few enough to fill up early in each sample, which then includes trimming


@dataclass(frozen=True)
class Beside(Bench):
    """A bench that compares delayq with a ledger to delayq without one, instead of to the bare scripts.

    Attributes:
        cpu_us: Redis CPU time per message, one sample per run: with a ledger, and without.
    """

    cpu_us: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})

    def _pair(
        self, count: int, own: Callable[[int], float], bare: Callable[[int], float], runs: int, filled: bool = False
    ) -> PairedRates:
        del bare

        def rate(keeps: bool) -> float:
            self.queue.configure(events=KEPT if keeps else None)
            if filled:
                self.due(count)
            before = server_load.read(self.client)
            seconds = own(count)
            spent = server_load.read(self.client).since(before).cpu_seconds
            if keeps and not self.client.exists(self.queue._context.shards[0].keys.events):
                raise RuntimeError("no ledger was kept: the figures are void")
            self.cpu_us[keeps].append(spent / count * 1e6)
            self.clear()
            self.tick()
            return count / seconds

        rate(keeps=False)  # connects, and loads the scripts
        for samples in self.cpu_us.values():
            samples.clear()
        return alternate(lambda: rate(keeps=True), lambda: rate(keeps=False), runs)


def rates(server: BenchServer, size: int, runs: int, messages: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the rates with and without a ledger, and Redis CPU time per message, measured in turn."""
    found = {}
    with opened(server, size) as place:
        beside = Beside(**{each.name: getattr(place, each.name) for each in fields(place)})
        for name, title in TITLES.items():
            paired = RATES[name][1](beside, BenchPlan(messages, runs))
            cpu = {
                kind: statistics.median(beside.cpu_us[keeps]) for kind, keeps in (("with", True), ("without", False))
            }
            found[name] = paired.as_record() | {"redis_us": cpu}
            result = f"{paired.median:,.0f}/s, {cost(paired.ratio):.0%} less than without"
            redis = f"Redis {cpu['with']:.1f} µs per message instead of {cpu['without']:.1f}"
            say(f"{title}, with a ledger: {result}; {redis}")
    return found


def cost(ratio: float) -> float:
    """Return the cost of a ledger as a share of the rate without one."""
    return 1 - ratio
