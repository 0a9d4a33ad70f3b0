"""The server is killed repeatedly while messages flow, and takes long to load its data after each restart."""

from __future__ import annotations

import time

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.traffic import Traffic
from tests.harness.chaos.world import Broken, World

FILLERS = 15_000
SLOWNESS = {"key-load-delay": "-2"}  # half of all loaded commands take 50 to 100 µs more, as with a larger file
# Small, and made of commands: Redis answers LOADING after every 1,024 commands.
FILE = {"aof-use-rdb-preamble": "no", "auto-aof-rewrite-min-size": "1mb"}


def run(world: World) -> Verdict:
    """While the server answers LOADING, nothing is lost, and every send is acknowledged in the end."""
    server = world.server(config=SLOWNESS | FILE)
    with server.client() as client:
        client.mset({f"filler:{n}": n for n in range(FILLERS)})
        client.bgrewriteaof()
    traffic = Traffic(world, server, seconds=world.pick(3, 120))
    refused, loads = 0, []
    while traffic.lasts(refused > 0):
        time.sleep(world.dice.uniform(0.3, world.pick(1, 6)))
        with world.trouble("SIGKILL of the server"):
            server.kill()
            began = time.monotonic()
            server.start()
            loads.append(time.monotonic() - began)
        with server.client() as client:
            refused += client.info("commandstats").get("cmdstat_evalsha", {}).get("rejected_calls", 0)
    world.figures["kills"] = f"{len(loads)}, longest to load {max(loads):.1f} s"
    world.figures["LOADING"] = f"{refused:,}"
    if not refused:
        raise Broken(f"nobody was told LOADING, in {loads} s")
    return traffic.end()
