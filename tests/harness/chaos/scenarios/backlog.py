"""A backlog waits for many leases until its turn."""

from __future__ import annotations

import time

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World

CONCURRENCY = 4  # of each consumer
CONSUMERS = 2


def run(world: World) -> Verdict:
    """Waiting uses up no retry: each message is delivered once, and no lease ends."""
    # The lease in seconds, the backlog in leases, and the seconds that a handler takes. In the short form, the lease
    # outlasts a pause of the machine.
    lease, leases, work = world.pick((12.0, 1.2, 0.02), (5.0, 20, 0.01))
    server = world.server()
    queue = world.queue(server.url, lease=lease)
    count = round(leases * lease * CONCURRENCY * CONSUMERS / work)
    producer = world.producer(server.url, "work", name="m", count=count, batch=500, delays=(0.0, 0.0))
    world.finish(producer)
    began = time.monotonic()
    task = {"lease": lease, "concurrency": CONCURRENCY, "work": work}
    consumers = [world.consumer(server.url, "work", **task) for _ in range(CONSUMERS)]
    world.drain(queue, 10 * leases * lease)
    world.figures["backlog"] = f"{(time.monotonic() - began) / lease:.0f} leases"
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=lease)
    stats = queue.stats()
    if (verdict.sends, verdict.deliveries, stats.acked) != (count, count, count):
        raise Broken(f"{count} messages were not delivered once each: {verdict}; {stats}")
    if burnt := stats.lease_lost + stats.nacked + stats.died:
        raise Broken(f"{burnt} attempts were burnt by waiting: {stats}")
    return verdict
