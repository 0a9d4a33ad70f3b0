"""The server reaches its maxmemory (noeviction) repeatedly while messages flow."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.history import Event
from tests.harness.chaos.outages import handed_out_at, outages
from tests.harness.chaos.traffic import Traffic, errors
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

STILL_SECONDS = 30.0  # the longest pause of the machine


def run(world: World) -> Verdict:
    """A send is acknowledged or refused, refused messages are never delivered, and consumers keep working."""
    server = world.server(config={"maxmemory-policy": "noeviction"})
    traffic = Traffic(world, server, seconds=world.pick(3, 60), batch=1, again=False)
    middles: list[float] = []  # the middles of the planned outages, monotonic
    with server.client() as client:
        while traffic.lasts(has_refused(world)):
            time.sleep(world.dice.uniform(0.2, world.pick(0.5, 2)))
            with world.trouble("maxmemory is reached"):
                used = client.info("memory")["used_memory"]  # there is room again as soon as some messages are done
                client.config_set("maxmemory", world.pick(1, world.dice.choice([1, used])))
                seconds = world.dice.uniform(1, world.pick(1.2, 6))
                middles.append(time.monotonic() + seconds / 2)
                time.sleep(seconds)
                if world.size == "short":  # the machine may have paused
                    eventually(lambda: goes_on(world, middles[-1], traffic.stock), STILL_SECONDS)
                client.config_set("maxmemory", 0)
        world.figures["OOM"] = f"{errors(client, 'OOM'):,}"
    verdict = traffic.end(all_sent=False)
    events = history.read(world.folder)
    refused = {event.id for event in events if event.kind == "refused"}
    world.figures["refused"] = f"{len(refused):,}"
    if not refused or verdict.sends + len(refused) != traffic.count:
        raise Broken(f"of {traffic.count} sends, {verdict.sends} were acknowledged and {len(refused)} refused")
    if resent := sorted({event.id for event in events if event.kind == "delivered"} & refused):
        raise Broken(f"refused, and delivered all the same: {resent[:5]}")
    stock = from_stock(events)
    full = [
        (outage, since) for outage, since in zip(outages(events), middles, strict=True) if outage.ended < max(stock)
    ]
    if idle := [outage for outage, since in full if not any(since < each < outage.ended for each in stock)]:
        raise Broken(f"nothing new was handed out any more while the memory was full: {idle}")
    return verdict


def from_stock(events: Iterable[Event]) -> list[float]:
    """Return when each message of the stock was first handed out; they fall due all the time until the end."""
    stock = (event for event in events if event.kind == "delivered" and event.id.startswith("stock"))
    return [handed_out_at(each) for each in stock if each.attempt == 1]


def goes_on(world: World, since: float, stocked: int) -> bool:
    """Whether a message of the stock was handed out since then, or none is left."""
    stock = from_stock(history.read(world.folder))
    return len(stock) >= stocked or any(each > since for each in stock)


def has_refused(world: World) -> bool:
    return any(event.kind == "refused" for event in history.read(world.folder))
