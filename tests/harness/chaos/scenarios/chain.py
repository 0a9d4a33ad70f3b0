"""Consumers of chains, where each link sends the next together with its ack, are killed repeatedly."""

from __future__ import annotations

import time
from collections.abc import Iterable

from delayq import Queue
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.programs.chain import link
from tests.harness.chaos.scenarios.kill_consumers import strike
from tests.harness.chaos.world import Broken, World

LEASE = 1.0
CONSUMERS = 3


def run(world: World) -> Verdict:
    """Kill a consumer every half second: each link of each chain is done and acked once."""
    server = world.server()
    lease = world.lease(LEASE)
    queue = world.queue(server.url, lease=lease)
    chains, links = world.pick((16, 12), (200, 200))
    hits = world.pick(4, 3000)  # stop the kills after this many lost deliveries
    most = world.pick(hits, 100 * hits)  # kills
    begin(world, queue, range(chains))
    task = {"lease": lease, "links": links, "work": world.pick(0.05, 0.02)}
    consumers = [world.chain(server.url, "work", **task) for _ in range(CONSUMERS)]
    kills = 0
    while (stats := queue.stats()).lease_lost < hits:
        world.check_time(queue)
        if not stats.inside and stats.lease_lost:
            break
        if not stats.inside:  # this process paused meanwhile, or a kill came when nothing was running
            begin(world, queue, range(chains, 2 * chains))
            chains, most = 2 * chains, most + hits
        if stats.sent > chains * links:
            raise Broken(f"{chains * links} links: {stats.sent} were sent")
        if kills < most:
            strike(world, consumers, lambda: queue.stats().inside == 0)
            kills += 1
            consumers.append(world.chain(server.url, "work", **task))
        else:
            time.sleep(0.1)
    world.drain(queue, 180)
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=lease)
    if verdict.buried:
        died = [(each.id, each.attempts, each.reason, each.error) for each in queue.dead.list()]
        raise Broken(f"messages died, though each is retried 50 times: {died}; {verdict}")
    stats = queue.stats()
    world.figures |= {"kills": str(kills), "in flight at them": f"{stats.lease_lost:,}"}
    whole = {f"{chain}:{number}" for chain in range(chains) for number in range(1, links + 1)}
    done = {event.id for event in history.read(world.folder) if event.kind == "finished"}
    if done != whole:
        raise Broken(f"{len(whole - done)} links were not done, such as {sorted(whole - done)[:5]}; {verdict}")
    if (stats.sent, stats.acked) != (len(whole), len(whole)):
        raise Broken(f"{len(whole)} links: {stats.sent} were sent, and {stats.acked} acked; {verdict}")
    return verdict


def begin(world: World, queue: Queue, chains: Iterable[int]) -> None:
    """Send the first link of each chain."""
    for chain in chains:
        world.journal.note("attempted", f"{chain}:1")
        first = link(chain, 1)
        sent = queue.send(first.payload, id=first.id, max_retries=first.max_retries)
        world.journal.note("sent", f"{chain}:1", ms=sent.due_at.timestamp() * 1000)
