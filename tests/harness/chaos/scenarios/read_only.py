"""The server is repeatedly made a replica and a master again while messages flow."""

from __future__ import annotations

import time
from itertools import cycle

import redis

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.traffic import Traffic, errors
from tests.harness.chaos.world import Broken, World
from tests.harness.servers import free_port


def run(world: World) -> Verdict:
    """A replica without its master answers READONLY or MASTERDOWN: every send is acknowledged in the end."""
    server = world.server()
    traffic = Traffic(world, server, seconds=world.pick(3, 90))
    seconds = (0.3, world.pick(1, 6))
    with server.client() as client:
        for serves_stale in cycle(("yes", "no")):
            if not traffic.lasts(all(refusals(client).values())):
                break
            time.sleep(world.dice.uniform(*seconds))
            with world.trouble("replica"):
                client.config_set("replica-serve-stale-data", serves_stale)
                client.replicaof("127.0.0.1", free_port())
                time.sleep(world.dice.uniform(*seconds))
                client.replicaof("NO", "ONE")
        refused = refusals(client)
    world.figures |= {code: f"{count:,}" for code, count in refused.items()}
    if not all(refused.values()):
        raise Broken(f"nobody was refused: {refused}")
    return traffic.end()


def refusals(client: redis.Redis) -> dict[str, int]:
    """Return how often a replica has refused a call, by error code."""
    return {code: errors(client, code) for code in ("READONLY", "MASTERDOWN")}
