"""Another client's Lua script blocks the server repeatedly while messages flow."""

from __future__ import annotations

import time
from contextlib import suppress

from redis.exceptions import ResponseError

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.traffic import Traffic, errors
from tests.harness.chaos.world import Broken, Size, World

ENDLESS = "while true do end"
# After this many milliseconds the server answers BUSY. With Redis' default of 5,000, clients give up before.
LIMITS: dict[Size, list[int]] = {"short": [100], "long": [100, 5000]}


def run(world: World) -> Verdict:
    """The server is silent for a moment, then answers BUSY: every send is acknowledged in the end."""
    server = world.server()
    traffic = Traffic(world, server, seconds=world.pick(3, 90))
    with server.client() as client, server.client() as other:
        connection = other.connection_pool.get_connection()
        while traffic.lasts(errors(client, "BUSY") > 0):
            time.sleep(world.dice.uniform(0.3, world.pick(1, 6)))
            client.config_set("lua-time-limit", world.dice.choice(LIMITS[world.size]))
            with world.trouble("a long script"):
                connection.send_command("EVAL", ENDLESS, 0)
                time.sleep(world.dice.uniform(0.3, world.pick(1, 7)))
                client.script_kill()
                with suppress(ResponseError):  # the script was killed
                    connection.read_response()
        other.connection_pool.release(connection)
        refused = errors(client, "BUSY")
    world.figures["BUSY"] = f"{refused:,}"
    if not refused:
        raise Broken("nobody was told BUSY")
    return traffic.end()
