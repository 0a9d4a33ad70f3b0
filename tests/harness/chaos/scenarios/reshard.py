"""The slots of a queue move between masters under load; then the whole cluster refuses to serve for a while."""

from __future__ import annotations

import time
from collections import Counter

from redis.crc import key_slot

from delayq.protocol.queue_keys import QueueKeys
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.load import Load, trouble
from tests.harness.chaos.world import Broken, World
from tests.harness.topologies import Cluster, refusals

SHARDS = 2
RATE = 200.0
WORK = 0.025  # seconds: too much for the threads of one consumer at this rate, so that each consumer is needed
DOWN_SECONDS = 1.5
RESUMED_SECONDS = 5.0
ENOUGH_SECONDS = 240.0
MET = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")


def run(world: World) -> Verdict:
    """Move the slots, first to a master without any: everything is handled, and all clients recover by themselves."""
    # A master that has given its last slot away would become a replica.
    cluster = Cluster(world.server, empty=1, config={"cluster-allow-replica-migration": "no"})
    keys = [QueueKeys("delayq", "work", shard).meta for shard in range(SHARDS)]
    count, moves = world.pick((2_400, 2), (8_000, 8))
    producing = {"delays": (0.0, 2.0), "again": True, "batch": 5}
    options = {"count": count, "rate": RATE, "shards": SHARDS, "producing": producing, "consuming": {"work": WORK}}
    with Load(world, cluster.url, "work", **options) as load:
        load.flows()
        slowest = 0.0
        for number in range(moves):
            key = keys[number % SHARDS]
            other = [master for master in cluster.empty + cluster.masters if master is not cluster.owner(key)]
            time.sleep(world.pick(0.5, 1.0))
            with trouble([load], "a slot moves"):
                cluster.move(key, other[0] if number == 0 else world.dice.choice(other), world.pick(0.1, 0.2))
            slowest = max(slowest, load.goes_on())
        with trouble([load], "the cluster is down"), cluster.down(free_slot(keys)):
            time.sleep(DOWN_SECONDS)
        slowest = max(slowest, load.goes_on())
        verdict = load.ended(ENOUGH_SECONDS)
    said: Counter[str] = Counter()
    for node in cluster.nodes:
        said.update(refusals(node))
    world.figures["answers"] = ", ".join(f"{code} {said[code]:,}" for code in MET)
    world.figures["slots moved"] = str(moves)
    world.figures["consumers resumed after"] = f"{slowest:.2f} s"
    if missing := [code for code in MET if not said[code]]:
        raise Broken(f"no node has answered {missing}: the scenario has not met what it is about")
    if verdict.sends != count:
        raise Broken(f"{verdict.sends} of {count} sends were acknowledged in the end")
    if world.size == "long" and slowest > RESUMED_SECONDS:
        raise Broken(f"consumers went on {slowest:.2f} s after the trouble was over")
    return verdict


def free_slot(keys: list[str]) -> int:
    """Return a slot that holds nothing."""
    taken = {key_slot(key.encode()) for key in keys}
    return next(slot for slot in range(SHARDS + 1) if slot not in taken)
