"""A master behind Sentinel is killed under load, and its replica takes over."""

from __future__ import annotations

import time

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.failover import PATIENT_MS, both, fail_over, judged
from tests.harness.chaos.world import World
from tests.harness.servers import RedisServer
from tests.harness.topologies import Pair, Watched, follow


def run(world: World) -> Verdict:
    """Kill the master: what a replica has confirmed is handled, and producers and consumers recover by themselves."""
    watched = Watched(world.server, 1, 3, down_after_milliseconds=PATIENT_MS, failover_timeout=5000)
    pair = Pair(watched.master, watched.replicas[0])
    safe, fast = both(world, watched.url)
    with safe, fast:
        promotions = []
        for _ in range(world.pick(1, 3)):
            safe.flows()
            fast.flows()
            time.sleep(world.dice.uniform(*world.pick((0.5, 1.0), (3, 8))))
            promotions.append(fail_over((safe, fast), watched, pair, world.pick(demoted, left_to_sentinels)))
        return judged(world, (safe, fast), promotions)


def demoted(old: RedisServer, new: RedisServer) -> None:
    """Make the old master a replica at once, as sentinels do after 10 s."""
    follow(old, new)


def left_to_sentinels(_old: RedisServer, _new: RedisServer) -> None:
    """For 10 s there are two masters; no client may use the old one."""
