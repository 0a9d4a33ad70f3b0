"""A failover under load, and what it costs a queue that waits for replicas and one that does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.load import Load, trouble
from tests.harness.chaos.world import Broken, World
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster, Pair, Watched, is_in_step, is_master
from tests.harness.waiting import eventually

LAG_SECONDS = 0.3  # without its link before the master dies: as a replica lags behind on a real network
DOWN_MS, PATIENT_MS = 1000, 60_000
PROMOTED_SECONDS = 180.0  # a Sentinel does nothing for 30 after it was stopped
RESUMED_SECONDS = 5.0
COUNTS = {"short": 1_000, "long": 20_000}
RATE = 200.0
WORK = 0.025  # seconds: too much for the threads of one consumer at this rate, so that each consumer is needed
ENOUGH_SECONDS = 240.0


class Promotion(NamedTuple):
    """A promoted replica: when, on the monotonic clock, and how many seconds later the consumers resumed."""

    at: float
    resumed: float


def fail_over(
    loads: tuple[Load, Load], servers: Watched | Cluster, pair: Pair, demote: Callable[[RedisServer, RedisServer], None]
) -> Promotion:
    """Kill a master whose replica lags behind, and wait until all clients have resumed.

    Args:
        demote: makes the restarted old master a replica of the new one, or lets it become one.
    """
    safe, fast = loads
    with trouble(loads, "the master is killed"):
        servers.give_up_after(DOWN_MS)  # at other times, a busy machine must not count as dead
        with pair.behind(LAG_SECONDS) as (master, replica):
            master.kill()
        if not eventually(lambda: is_master(replica), PROMOTED_SECONDS):
            raise Broken(f"{replica!r} was not promoted: {replica.log()}")
        promoted = time.monotonic()
        resumed = fast.goes_on()  # before the old master is back, because the other queue waits for a replica
        master.start()
        demote(master, replica)
        if not eventually(lambda: is_in_step(master), PROMOTED_SECONDS):
            raise Broken(f"{master!r} has not become a replica: {master.log()}")
        servers.give_up_after(PATIENT_MS)
    safe.goes_on()
    return Promotion(promoted, resumed)


def both(world: World, url: str, shards: int = 1) -> tuple[Load, Load]:
    """Run two queues: "safe" waits for a replica, "fast" does not."""
    count = COUNTS[world.size]
    producing = {"delays": (0.0, 2.0), "again": True, "batch": 20}

    def use(name: str, wait_replicas: int) -> Load:
        settings = producing | {"wait_replicas": wait_replicas}
        return Load(
            world, url, name, count=count, rate=RATE, shards=shards, producing=settings, consuming={"work": WORK}
        )

    return use("safe", 1), use("fast", 0)


def judged(world: World, loads: tuple[Load, Load], promotions: list[Promotion]) -> Verdict:
    """Return the verdict on "safe", and note what "fast" has lost; nothing else may be wrong with it."""
    safe, fast = loads
    verdict, other = safe.ended(ENOUGH_SECONDS), fast.ended(ENOUGH_SECONDS)
    slowest = max(promotion.resumed for promotion in promotions)
    sending = max(fast.sends_again(promotion.at) for promotion in promotions)
    world.figures["failovers"] = str(len(promotions))
    world.figures["lost without wait_replicas"] = f"{len(other.lost):,} of {other.sends:,}"
    world.figures["consumers resumed after"] = f"{slowest:.2f} s"
    world.figures["producers resumed after"] = f"{sending:.2f} s"
    if not replace(other, lost=[]).is_valid:
        raise Broken(f"without wait_replicas, more than losses: {other}")
    if verdict.sends != safe.count or other.sends != fast.count:
        raise Broken(f"{verdict.sends} and {other.sends} of {safe.count} sends each were acknowledged in the end")
    if world.size == "long" and slowest > RESUMED_SECONDS:
        raise Broken(f"consumers went on {slowest:.2f} s after the replica was promoted")
    return verdict
