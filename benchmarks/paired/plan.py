"""What is measured of delayq beside its bare scripts, and how much of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.paired.rates import Bench
from benchmarks.paired.samples import PairedRates


class BenchPlan(NamedTuple):
    """How much to measure."""

    messages: int
    runs: int


RATES: dict[str, tuple[str, Callable[[Bench, BenchPlan], PairedRates]]] = {
    "send_one": ("send, one by one", lambda bench, plan: bench.send_one(max(1, plan.messages // 5), plan.runs)),
    "send_bulk": ("send_many", lambda bench, plan: bench.send_bulk(plan.messages, plan.runs)),
    "threads_8": ("send, from 8 threads", lambda bench, plan: bench.send_threads(plan.messages // 2, plan.runs, 8)),
    "threads_64": ("send, from 64 threads", lambda bench, plan: bench.send_threads(plan.messages // 2, plan.runs, 64)),
    "drain": ("consume", lambda bench, plan: bench.drain(plan.messages, plan.runs)),
    "pull": ("receive and ack", lambda bench, plan: bench.pull(plan.messages, plan.runs)),
}
"""Each rate with its label and its measurement."""
