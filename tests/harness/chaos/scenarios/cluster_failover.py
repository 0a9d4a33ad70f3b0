"""The masters of a cluster are killed under load one after the other, and their replicas take over."""

from __future__ import annotations

import time

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.failover import PATIENT_MS, both, fail_over, judged
from tests.harness.chaos.world import World
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster

SHARDS = 6  # per queue, so that each master holds a part of both


def run(world: World) -> Verdict:
    """Kill masters: what a replica has confirmed is handled, and producers and consumers recover by themselves."""
    settings = {"cluster-node-timeout": str(PATIENT_MS), "cluster-replica-validity-factor": "0"}
    cluster = Cluster(world.server, replicas=True, config=settings)
    safe, fast = both(world, cluster.url, SHARDS)
    with safe, fast:
        promotions = []
        for pair in world.dice.sample(cluster.pairs, world.pick(1, 3)):
            safe.flows()
            fast.flows()
            time.sleep(world.dice.uniform(*world.pick((0.5, 1.0), (3, 8))))
            promotions.append(fail_over((safe, fast), cluster, pair, left_to_cluster))
        return judged(world, (safe, fast), promotions)


def left_to_cluster(_old: RedisServer, _new: RedisServer) -> None:
    """The old master learns from the others that it has become a replica."""
