"""The workloads for all peers, and how to show their figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.tasks import (
    Figures,
    Task,
    backlog,
    drain,
    drain_results,
    idle,
    lateness,
    memory,
    send_bulk,
    send_one,
    send_one_core,
)


@dataclass(frozen=True)
class Workload:
    """A workload.

    Attributes:
        name: in options and results.
        title: for people.
        columns: the figures by name, the main one first, with heading and format.
        run: runs the workload once.
        messages: of the first run, which only warms up; of every run if `most` is 0.
        most: the most messages of the other runs, which get as many as take some seconds.
        rounds: the most rounds of a long workload.
    """

    name: str
    title: str
    columns: dict[str, tuple[str, str]]
    run: Callable[[Task], Figures]
    messages: int
    most: int = 0
    rounds: int = 100
    higher_is_better: bool = True

    @property
    def main(self) -> str:
        """The name of the main figure."""
        return next(iter(self.columns))


RATE = {"per_second": ("messages/s", ",.0f")}
LATE = {
    "p50_ms": ("50%, ms", ",.2f"),
    "p99_ms": ("99%, ms", ",.2f"),
    "max_ms": ("maximum, ms", ",.1f"),
    "early": ("early", ",.0f"),
}

DRAINED = RATE | {
    "redis_cpu_us": ("Redis, µs per message", ",.1f"),
    "redis_commands": ("commands per message", ",.2f"),
    "consumer_cpu_us": ("consumer, µs per message", ",.1f"),
}

WORKLOADS = (
    Workload("send_one", "Send one by one", RATE, send_one, messages=500, most=100_000),
    Workload("send_one_core", "Send one by one, on the core of Redis", RATE, send_one_core, messages=500, most=100_000),
    Workload("send_bulk", "Send in bulk", RATE, send_bulk, messages=2_000, most=1_000_000),
    Workload("drain", "One consumer process drains", DRAINED, drain, messages=1_000, most=300_000),
    Workload(
        "drain_results",
        "One consumer process drains, and keeps each result for an hour",
        DRAINED,
        drain_results,
        messages=1_000,
        most=100_000,
    ),
    Workload(
        "lateness",
        "Lateness at 100 messages per second",
        LATE,
        lateness,
        messages=2_000,
        rounds=3,
        higher_is_better=False,
    ),
    Workload(
        "lateness_1000",
        "Lateness at 1,000 messages per second",
        LATE,
        lateness,
        messages=20_000,
        rounds=3,
        higher_is_better=False,
    ),
    Workload(
        "memory",
        "Memory of a waiting message of 100 bytes",
        {"bytes": ("bytes", ",.0f")},
        memory,
        messages=100_000,  # with fewer, the server's own memory would show
        rounds=3,
        higher_is_better=False,
    ),
    Workload(
        "backlog_peers",
        "With 1,000,000 messages waiting",
        {"per_second": ("drained/s", ",.0f"), "sent_per_second": ("sent/s", ",.0f")},
        backlog,
        messages=50_000,
        rounds=1,
    ),
    Workload(
        "idle",
        "An idle consumer",
        {
            "cpu_percent": ("% of a core", ",.2f"),
            "commands_per_second": ("commands/s", ",.1f"),
            "within_scripts_per_second": ("in scripts/s", ",.1f"),
        },
        idle,
        messages=1,
        rounds=3,
        higher_is_better=False,
    ),
)
