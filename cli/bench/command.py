"""bench: how fast delayq is on this machine and this server."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

import delayq

from ..connection import ServerOptions
from ..options import command, json_option, server_options
from ..output import note, print_fields, print_json, print_table
from ..progress import progress
from . import costs
from .consumer import DrainResult
from .rates import Bench
from .rates import bench as opened
from .samples import NOISY, PairedRates, summary

LATE_A_SECOND = 100  # messages: 2,000 in 20 seconds
LONE = 5
EMBEDDED = (
    "the embedded store writes each change to disk before it answers (appendfsync always), which limits the rates"
)
NOISE = "{name}: even the bare scripts vary by {percent:.0%} from run to run; the machine is busy"


class BenchPlan(NamedTuple):
    """How much to measure."""

    messages: int
    runs: int
    seconds: float

    @property
    def late(self) -> int:
        """The number of messages whose lateness is measured."""
        return max(10, round(LATE_A_SECOND * self.seconds))


SHORT = BenchPlan(messages=20_000, runs=1, seconds=2.0)

RATES: dict[str, tuple[str, Callable[[Bench, BenchPlan], PairedRates]]] = {
    "send_one": ("send, one by one", lambda bench, plan: bench.send_one(max(1, plan.messages // 5), plan.runs)),
    "send_bulk": ("send_many", lambda bench, plan: bench.send_bulk(plan.messages, plan.runs)),
    "threads_8": ("send, from 8 threads", lambda bench, plan: bench.send_threads(plan.messages // 2, plan.runs, 8)),
    "threads_64": ("send, from 64 threads", lambda bench, plan: bench.send_threads(plan.messages // 2, plan.runs, 64)),
    "drain": ("consume", lambda bench, plan: bench.drain(plan.messages, plan.runs)),
    "pull": ("receive and ack", lambda bench, plan: bench.pull(plan.messages, plan.runs)),
}
"""Each rate with its label and its measurement."""

COSTS: dict[str, Callable[[Bench, BenchPlan], Any]] = {
    "lateness": lambda bench, plan: costs.lateness(bench, plan.late, plan.seconds),
    "memory_bytes": lambda bench, plan: costs.memory(bench, plan.messages),
    "cost": lambda bench, plan: costs.cost(bench, plan.messages),
    "lone_trips": lambda bench, _: costs.lone_trips(bench, LONE),
}


@command("delayq bench --short", "Measure how fast delayq is on this server.")
@click.option(
    "--messages", default=50_000, show_default=True, type=click.IntRange(100, 10_000_000), help="Messages per run."
)
@click.option(
    "--runs", default=5, show_default=True, type=click.IntRange(1, 100), help="Runs per rate; the medians are printed."
)
@click.option(
    "--seconds",
    default=20.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="How long to measure lateness.",
)
@click.option("--size", default=100, show_default=True, type=click.IntRange(1, 1_000_000), help="Bytes per payload.")
@click.option("--short", is_flag=True, help="Quick: 20,000 messages, 1 run, 2 seconds.")
@server_options
@json_option
def bench(
    server: ServerOptions, messages: int, runs: int, seconds: float, size: int, short: bool, as_json: bool
) -> None:
    """Measure how fast delayq is on this server, how late its messages are, and what they cost.

    Next to each rate is that of the bare scripts: the same work in Redis, driven by a minimal client. The ratio of the
    two says more than the rate itself, which depends on the machine and the network.

    Uses its own queue and deletes its keys at the end. It puts a heavy load on the server: do not use a server that
    others depend on.
    """
    plan = SHORT if short else BenchPlan(messages, runs, seconds)
    embedded = not server.url or server.url.lower().startswith("embedded:")
    if embedded:
        note(EMBEDDED)
    steps = len(RATES) * (2 * plan.runs + 1) + len(COSTS)
    with _ended_in_order(), progress("measuring", steps) as bar, opened(server, size, lambda: bar.advance(1)) as place:
        redis_version = str(place.client.info("server")["redis_version"])
        rates = {name: measure(place, plan) for name, (_, measure) in RATES.items()}
        figures = {}
        for name, measured in COSTS.items():
            figures[name] = measured(place, plan)
            bar.advance(1)
    if as_json:
        settings = plan._asdict() | {"size": size}
        told = {"delayq": delayq.__version__, "redis": redis_version, "embedded": embedded, "settings": settings}
        print_json(told | {"rates": {name: each.as_record() for name, each in rates.items()}} | figures)
    else:
        _print_rates(rates)
        _print_figures(figures, plan, size)
    for name, each in rates.items():
        if each.unrest > NOISY:
            note(NOISE.format(name=RATES[name][0], percent=each.unrest))


def _print_rates(rates: dict[str, PairedRates]) -> None:
    rows = []
    for name, paired in rates.items():
        own, bare = summary(paired.own), summary(paired.bare)
        cells = [cell for each in (own, bare) for cell in (f"{each['median']:,.0f}", _range(each))]
        rows.append([RATES[name][0], *cells, f"{paired.ratio:.2f}"])
    print_table(["messages per second", "#delayq", "#from–to", "#bare scripts", "#from–to", "#ratio"], rows)


def _range(told: dict[str, Any]) -> str:
    return f"{told['min']:,.0f}–{told['max']:,.0f}"


def _print_figures(figures: dict[str, Any], plan: BenchPlan, size: int) -> None:
    late: DrainResult = figures["lateness"]
    cost: costs.Cost = figures["cost"]
    late_of = f"50% within {late.p50_ms:.2f} ms, 99% within {late.p99_ms:.2f} ms, all within {late.max_ms:.2f} ms"
    print_fields(
        [
            ("lateness", f"{late_of}; {late.early or 'none'} early ({late.messages:,} over {plan.seconds:g} s)"),
            ("memory", f"{figures['memory_bytes']:.0f} bytes per waiting message of {size} bytes"),
            ("server CPU", f"{cost.redis_cpu_us:.1f} µs per message, sent in bulk and consumed"),
            ("commands", f"{cost.commands:.2f} per message, including those in scripts"),
            ("round trips", f"{cost.trips:.3f} per message in bulk; {figures['lone_trips']:.0f} for a single message"),
        ]
    )


@contextmanager
def _ended_in_order() -> Generator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that the block cleans up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
