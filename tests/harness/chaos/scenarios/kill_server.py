"""The server is killed and restarted repeatedly while messages flow; everything it has answered is on disk."""

from __future__ import annotations

import time

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.traffic import Traffic
from tests.harness.chaos.world import World


def run(world: World) -> Verdict:
    """Kill the server sooner or later after each restart: every send is acknowledged, and none is lost."""
    server = world.server()
    traffic = Traffic(world, server, seconds=world.pick(3, 180))
    kills = 0
    while traffic.lasts(kills > 0):
        time.sleep(world.dice.uniform(0.1, world.pick(1, 6)))
        with world.trouble("SIGKILL of the server"):
            server.kill()
            time.sleep(world.dice.uniform(0, world.pick(0.5, 3)))
            server.start()
        kills += 1
    world.figures["kills"] = str(kills)
    return traffic.end()
