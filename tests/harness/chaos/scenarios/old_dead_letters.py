"""A million dead letters have outlived their retention, while consumers with a short lease run long handlers.

Another client sends a PING every millisecond meanwhile.
"""

from __future__ import annotations

import time
from typing import Any

from delayq import Queue
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.pings import Pings, check_waits
from tests.harness.chaos.scenarios.burst import CONFIG, HOUR, SLOW_US, expect, send, slow_scripts
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

LEASE, WORK = 2.0, 15  # seconds; length of a handler in leases
CONSUMERS, CONCURRENCY = 2, 2
A_CALL = 1000


def run(world: World) -> Verdict:
    """No lease is lost, each message is delivered once, and all old dead letters and their payloads are deleted."""
    count, leases = world.pick((20_000, 1.2), (1_000_000, WORK))
    lease = world.lease(LEASE)
    server = world.server(appendonly=False, config=CONFIG)
    queue = world.queue(server.url, lease=lease)
    leave_dead(queue, count)
    messages = CONSUMERS * CONCURRENCY
    for number in range(messages):
        world.send(queue, number, id=f"m-{number}")
    pings = Pings(world, busy=server, idle=world.server(appendonly=False))
    task = {"lease": lease, "concurrency": CONCURRENCY, "work": leases * lease}
    consumers = [world.consumer(server.url, "work", **task) for _ in range(CONSUMERS)]
    if not eventually(lambda: queue.stats().purged > 0):
        raise Broken(f"no dead letter is purged: {queue.stats()}; {world.log()}")
    began = time.monotonic()
    with pings.stage("purge"):
        if not eventually(lambda: queue.stats().collected == count, 300):
            raise Broken(f"not all dead letters were deleted: {queue.stats()}; {world.log()}")
    world.figures["deleted"] = f"{count / (time.monotonic() - began):,.0f}/s"
    still = queue.stats().unack
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    waits = pings.end()
    found = [f"{name} {max(times):.1f} ms" for name, times in sorted(slow_scripts(queue).items())]
    world.figures[f"scripts over {SLOW_US // 1000} ms, the longest of each:"] = ", ".join(found) or "none"
    verdict = world.verdict(queue, lease=lease)
    stats = queue.stats()
    if (stats.delivered, stats.acked, stats.lease_lost, stats.released) != (messages, messages, 0, 0):
        raise Broken(f"{messages} messages were not delivered once each: {stats}; {verdict}")
    expect(queue, purged=count, collected=count)
    if world.size == "long" and not still:
        raise Broken(f"the handlers ended before the last dead letter was deleted: {world.figures}")
    check_waits(world, waits)
    return verdict


def leave_dead(queue: Queue, count: int) -> None:
    """Give a queue `count` complete dead letters that died long ago."""
    send(queue, count, delay=HOUR)
    keys = queue._context.shards[0].keys
    client: Any = queue._executor.client
    known = {keys.attempts: "6.0.0.0", keys.errors: "ValueError: no such user", keys.reasons: "retries-exhausted"}
    for start in range(0, count, A_CALL):
        ids = client.zrange(keys.pending, start, start + A_CALL - 1)
        with client.pipeline(transaction=False) as pipeline:
            for key, value in known.items():
                pipeline.hset(key, mapping=dict.fromkeys(ids, value))
            pipeline.zadd(keys.dead, dict.fromkeys(ids, 0))  # they died in 1970
            pipeline.execute()
    client.unlink(keys.pending)
    client.hincrby(keys.stats, "died", count)
    expect(queue, dead=count)
    client.slowlog_reset()
