"""The server reaches its maxmemory (noeviction), again and again, while messages flow."""

from __future__ import annotations

import time
from statistics import mean

from tests.faults import history
from tests.faults.checker import Verdict
from tests.faults.outages import handed_out_at, outages
from tests.faults.traffic import Traffic, errors
from tests.faults.world import Broken, World


def run(world: World) -> Verdict:
    """A send is acknowledged or refused, and a refused one is never delivered; consumers go on all the time."""
    server = world.server(config={"maxmemory-policy": "noeviction"})
    traffic = Traffic(world, server, seconds=world.pick(3, 60), batch=1, again=False)
    with server.client() as client:
        while traffic.lasts(has_refused(world)):
            time.sleep(world.dice.uniform(0.2, world.pick(0.5, 2)))
            with world.trouble("maxmemory is reached"):
                used = client.info("memory")["used_memory"]  # with this one, there is room as soon as some are done
                client.config_set("maxmemory", world.pick(1, world.dice.choice([1, used])))
                time.sleep(world.dice.uniform(1, world.pick(1.2, 6)))
                client.config_set("maxmemory", 0)
        world.figures["OOM"] = f"{errors(client, 'OOM'):,}"
    verdict = traffic.end(all_sent=False)
    events = history.read(world.folder)
    refused = {event.id for event in events if event.kind == "refused"}
    world.figures["refused"] = f"{len(refused):,}"
    if not refused or verdict.sends + len(refused) != traffic.count:
        raise Broken(f"of {traffic.count} sends, {verdict.sends} were acknowledged and {len(refused)} refused")
    deliveries = [event for event in events if event.kind == "delivered"]
    if resent := sorted({event.id for event in deliveries} & refused):
        raise Broken(f"refused, and delivered all the same: {resent[:5]}")
    # What was in stock falls due all the time, until its end.
    stock = [handed_out_at(each) for each in deliveries if each.id.startswith("stock") and each.attempt == 1]
    full = [outage for outage in outages(events) if outage.ended < max(stock)]
    if idle := [outage for outage in full if not any(mean(outage) < each < outage.ended for each in stock)]:
        raise Broken(f"nothing new was handed out any more while the memory was full: {idle}")
    return verdict


def has_refused(world: World) -> bool:
    return any(event.kind == "refused" for event in history.read(world.folder))
