"""What messages cost: CPU time, commands and round trips."""

from __future__ import annotations

import time
from dataclasses import dataclass

from delayq.cli.bench import freed

from benchmarks.paired import server_load
from benchmarks.paired.consumer import DrainOrder
from benchmarks.paired.rates import CONSUMER_SECONDS, Bench
from benchmarks.paired.samples import percentile

LONE_SECONDS = 0.2  # a window for one message: an idle consumer polls once a second, outside most windows


@dataclass(frozen=True)
class Cost:
    """What a message costs, sent in bulk and consumed.

    Attributes:
        redis_cpu_us: CPU time of the server.
        commands: commands that the server ran, including those in scripts.
        trips: round trips.
    """

    redis_cpu_us: float
    commands: float
    trips: float


def cost(bench: Bench, count: int) -> Cost:
    """Return the cost of a message that is sent in bulk and consumed."""
    freed(bench.client)
    before = server_load.read(bench.client)
    bench.send_many(count, delay=0.001)
    bench.consume(count)
    spent = server_load.read(bench.client).since(before)
    bench.clear()
    return Cost(spent.cpu_seconds / count * 1e6, spent.commands / count, spent.trips / count)


def lone_trips(bench: Bench, count: int) -> float:
    """Return the median number of round trips of a single message, from send to ack, with an idle consumer waiting."""
    bench.apart.begin(DrainOrder(bench.queue.name, count))
    time.sleep(LONE_SECONDS)
    trips = []
    for _ in range(count):
        before = server_load.read(bench.client)
        bench.queue.send(bench.payload, delay=LONE_SECONDS / 4)
        time.sleep(LONE_SECONDS)
        trips.append(server_load.read(bench.client).since(before).trips)
    bench.apart.end(CONSUMER_SECONDS)
    bench.clear()
    return percentile(trips, 0.5)
