"""Measurements of delayq alone: compared with the bare scripts, with several consumers, and over a long run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from typing import Any

from delayq.cli.connection import ServerOptions

from benchmarks import awaited, processes
from benchmarks.paired import costs
from benchmarks.paired.consumer import DrainOrder
from benchmarks.paired.plan import RATES, BenchPlan
from benchmarks.paired.process import ConsumerProcess
from benchmarks.paired.rates import CONSUMER_SECONDS, Bench, bench
from benchmarks.paired.samples import percentile
from benchmarks.server import BenchServer
from benchmarks.tasks import SETTLE_SECONDS, watch_idle
from delayq.model.delivery import Outgoing

PREFIX = "delayq"
LEAD_SECONDS = 1.0  # time to send them all
LONE = 20
FLEET_PROCESSES, FLEET_THREADS, FLEET_MESSAGES = 4, 25, 2_000
DRAINED_MESSAGES = 600_000
GROWTH_BATCH = 5_000
GROWTH_INSIDE = 50_000  # the most messages in the queue meanwhile, so that Redis' memory does not grow
POLL_SECONDS = 0.02

Say = Callable[[str], None]


def rates(server: BenchServer, size: int, runs: int, messages: int, say: Say) -> dict[str, Any]:
    """Return all rates, each measured in turn with the bare scripts."""
    found = {}
    with opened(server, size) as place:
        for name, (title, measure) in RATES.items():
            paired = measure(place, BenchPlan(messages, runs))
            found[name] = paired.as_record()
            say(f"{title}: {found[name]['per_second']['median']:,.0f}/s, {paired.ratio:.2f} of the bare scripts")
    return found


def awaiting(server: BenchServer, size: int, runs: int, messages: int, say: Say) -> dict[str, Any]:
    """Return the rates of the async API, each measured in turn with the bare scripts."""
    with opened(server, size) as place:
        return awaited.rates(place, server.url, messages, runs, say)


def cost(server: BenchServer, size: int, messages: int) -> dict[str, Any]:
    """Return the cost of a message in bulk, and the round trips of a single message."""
    with opened(server, size) as place:
        return asdict(costs.cost(place, messages)) | {"lone_trips": costs.lone_trips(place, LONE)}


def consumers(server: BenchServer, size: int, messages: int = DRAINED_MESSAGES) -> dict[str, dict[str, float]]:
    """Let one, two and three consumer processes drain a queue; return their rates, and what a message costs.

    With fewer cores than busy processes, the costs show what bounds the rate: the cores share their sum.
    """
    return {str(count): _drained_by(server, size, count, messages) for count in (1, 2, 3)}


def _drained_by(server: BenchServer, size: int, count: int, messages: int) -> dict[str, float]:
    with ExitStack() as stack:
        place = stack.enter_context(opened(server, size))
        link = stack.enter_context(_server(server))
        members = [place.apart, *(stack.enter_context(ConsumerProcess(link)) for _ in range(count - 1))]
        place.due(messages)
        for member in members:
            member.begin(DrainOrder(place.queue.name, None))
        _wait_acked(place, messages // 10)
        before, used, began, acked = server.read(), _cpu_of(members), time.monotonic(), place.queue.stats().acked
        _wait_acked(place, messages * 9 // 10)
        seconds, used, acked = time.monotonic() - began, _cpu_of(members) - used, place.queue.stats().acked - acked
        spent = server.read().since(before)
    return {
        "per_second": acked / seconds,
        "redis_core_share": spent.cpu_seconds / seconds,
        "redis_us": spent.cpu_seconds / acked * 1e6,
        "consumer_us": used / acked * 1e6,
    }


def _cpu_of(members: list[ConsumerProcess]) -> float:
    return sum(processes.cpu_seconds(member.process.pid) for member in members)


def idle(server: BenchServer, size: int) -> dict[str, dict[str, float]]:
    """Return what an idle consumer uses, and what an idle fleet uses, over all its processes.

    Unlike this consumer, the peers' programs check every few milliseconds whether they are done.
    """
    with opened(server, size) as place:
        place.apart.begin(DrainOrder(place.queue.name, None))
        time.sleep(SETTLE_SECONDS)
        one = watch_idle([place.apart.process.pid], server)
    with ExitStack() as stack:
        place = stack.enter_context(opened(server, size))
        link = stack.enter_context(_server(server))
        members = [place.apart, *(stack.enter_context(ConsumerProcess(link)) for _ in range(FLEET_PROCESSES - 1))]
        for member in members:
            member.begin(DrainOrder(place.queue.name, None, FLEET_THREADS))
        time.sleep(SETTLE_SECONDS)
        return {"one": one, "fleet": watch_idle([member.process.pid for member in members], server)}


def fleet(server: BenchServer, size: int) -> dict[str, float]:
    """Let 100 messages per second fall due with an idle fleet waiting; return their lateness."""
    with ExitStack() as stack:
        place = stack.enter_context(opened(server, size))
        link = stack.enter_context(_server(server))
        members = [place.apart, *(stack.enter_context(ConsumerProcess(link)) for _ in range(FLEET_PROCESSES - 1))]
        seconds = LEAD_SECONDS + FLEET_MESSAGES / 100
        for member in members:
            member.begin(DrainOrder(place.queue.name, None, FLEET_THREADS, seconds + 2 * SETTLE_SECONDS))
        time.sleep(SETTLE_SECONDS)
        delays = [LEAD_SECONDS + number / 100 for number in range(FLEET_MESSAGES)]
        place.queue.send_many([Outgoing(place.payload, delay=delay) for delay in delays])
        results = [member.end(seconds + 3 * SETTLE_SECONDS + CONSUMER_SECONDS) for member in members]
    late = [each for result in results for each in result.late_ms]
    if len(late) != FLEET_MESSAGES:
        raise RuntimeError(f"{FLEET_MESSAGES} messages were sent to the fleet, {len(late)} came")
    return {
        "p50_ms": percentile(late, 0.5),
        "p99_ms": percentile(late, 0.99),
        "max_ms": max(late),
        "early": sum(result.early for result in results),
        "members_served": sum(result.messages > 0 for result in results),
    }


def growth(server: BenchServer, size: int, messages: int, say: Say) -> dict[str, float]:
    """Let a consumer handle very many messages; return its memory after a tenth of them, and at the end."""
    with opened(server, size) as place:
        pid = place.apart.process.pid
        place.apart.begin(DrainOrder(place.queue.name, None))
        began, sent, early, shown = time.monotonic(), 0, 0, 0
        while sent < messages:
            place.send_many(GROWTH_BATCH, delay=0.001)
            sent += GROWTH_BATCH
            _wait_acked(place, sent - GROWTH_INSIDE)
            if not early and sent >= messages // 10:
                _wait_acked(place, sent)
                early = processes.resident_bytes(pid)
            if sent * 10 // messages > shown:
                shown = sent * 10 // messages
                say(f"growth: {sent:,} sent, {processes.resident_bytes(pid) / 2**20:.1f} MiB")
        _wait_acked(place, sent)
        seconds, late = time.monotonic() - began, processes.resident_bytes(pid)
    return {"messages": sent, "seconds": seconds, "bytes_at_10_percent": early, "bytes_at_the_end": late}


def opened(server: BenchServer, size: int) -> AbstractContextManager[Bench]:
    """Return a context with a queue to measure on the emptied server."""
    server.flush()
    place: AbstractContextManager[Bench] = bench(_server(server), size, lambda: None)
    return place


def _server(server: BenchServer) -> ServerOptions:
    return ServerOptions(server.url, PREFIX)


def _wait_acked(place: Bench, count: int) -> None:
    """Return once `count` messages were acked; raise TimeoutError if none is acked for a minute."""
    acked, since = -1, time.monotonic()
    while (now := place.queue.stats().acked) < count:
        if now > acked:
            acked, since = now, time.monotonic()
        elif time.monotonic() - since > CONSUMER_SECONDS / 2:
            raise TimeoutError(f"only {now:,} messages were acked; none for a minute")
        time.sleep(POLL_SECONDS)
