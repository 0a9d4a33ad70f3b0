"""The server forgets the scripts repeatedly while messages flow."""

from __future__ import annotations

import time

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.traffic import Traffic, errors
from tests.harness.chaos.world import Broken, World


def run(world: World) -> Verdict:
    """SCRIPT FLUSH several times a second: every send is acknowledged, and nothing stops."""
    server = world.server()
    traffic = Traffic(world, server, seconds=world.pick(3, 60))
    with server.client() as client:
        while traffic.lasts(errors(client, "NOSCRIPT") > 0):
            time.sleep(world.dice.uniform(0.01, 0.4))
            with world.trouble("SCRIPT FLUSH"):
                client.script_flush()
        forgotten = errors(client, "NOSCRIPT")
    world.figures["NOSCRIPT"] = f"{forgotten:,}"
    if not forgotten:
        raise Broken("nobody has noticed")
    return traffic.end()
