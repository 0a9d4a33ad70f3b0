"""What messages cost, and how late they are: what ``delayq bench`` prints besides the rates."""

from __future__ import annotations

import time
from dataclasses import dataclass

from delayq.model.delivery import Outgoing

from . import server_load
from .consumer import DrainOrder, DrainResult
from .rates import CONSUMER_SECONDS, Bench
from .samples import percentile

LEAD_SECONDS = 1.0  # time to send them all
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


def lateness(bench: Bench, count: int, seconds: float) -> DrainResult:
    """Let `count` messages fall due one after another over some seconds, with an idle consumer waiting."""
    bench.apart.begin(DrainOrder(bench.queue.name, count))
    step = seconds / count
    bench.queue.send_many([Outgoing(bench.payload, delay=LEAD_SECONDS + number * step) for number in range(count)])
    result = bench.apart.end(LEAD_SECONDS + seconds + CONSUMER_SECONDS)
    bench.clear()
    return result


def memory(bench: Bench, count: int) -> float:
    """Return the bytes that the server needs for a waiting message."""
    server_load.freed(bench.client)
    before = server_load.read(bench.client)
    bench.bare.send_bulk(count)
    grown = server_load.read(bench.client).since(before).memory_bytes
    bench.clear()
    return grown / count


def cost(bench: Bench, count: int) -> Cost:
    """Return the cost of a message that is sent in bulk and consumed."""
    server_load.freed(bench.client)
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
