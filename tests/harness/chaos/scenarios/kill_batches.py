"""Consumers of batches are killed repeatedly in the middle of a batch."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

LEASE = 1.0
CONSUMERS = 2
BATCH = 50
RETRIES = {"max_retries": 20}  # a kill hits the whole batch
HIT = 2  # minimum number of messages hit


def run(world: World) -> Verdict:
    """Kill a consumer whenever it is in the middle of a batch: each message is handled in the end."""
    server = world.server()
    lease = world.lease(LEASE)
    queue = world.queue(server.url, lease=lease)
    count = world.pick(2_000, 20_000)
    most = world.pick(3, 60)
    task = {"lease": lease, "max_messages": BATCH, "max_wait": 0.05, "work": 0.02, "fail_every": 50}
    producer = world.producer(
        server.url, "work", name="m", count=count, batch=200, delays=(0.0, world.pick(3.0, 30.0)), options=RETRIES
    )
    consumers = [world.batch(server.url, "work", **task) for _ in range(CONSUMERS)]
    kills, total = 0, count

    def is_over() -> bool:
        return producer.poll() is not None and queue.stats().inside == 0

    while kills < most or queue.stats().lease_lost < HIT:
        world.check_time(queue)
        if is_over():
            if queue.stats().lease_lost >= HIT:
                break
            # This process paused, or no kill came in the middle of a batch.
            producer = world.producer(server.url, "work", name=f"more-{kills}", count=count, batch=200, options=RETRIES)
            total, most = total + count, kills + 1
        if kills < most:
            strike(world, consumers.pop(world.dice.randrange(CONSUMERS)), is_over)
            kills += 1
            consumers.append(world.batch(server.url, "work", **task))
        else:
            time.sleep(0.1)
    world.finish(producer)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=lease)
    stats = queue.stats()
    world.figures |= {"kills": str(kills), "leases lost": f"{stats.lease_lost:,}"}
    done = {event.id for event in history.read(world.folder) if event.kind == "finished"}
    if len(done) != total or stats.acked != total:
        raise Broken(f"{total} messages: {len(done)} were handled, and {stats.acked} acked; {verdict}")
    return verdict


def strike(world: World, victim: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> None:
    """Kill a consumer in the middle of a batch; it is stopped while its journal is read."""
    path = world.folder / f"consumer-{victim.pid}.jsonl"

    def is_half_done() -> bool:
        victim.send_signal(signal.SIGSTOP)
        begun: set[tuple[str, int]] = set()
        for event in history.read_tail(path, 4 * BATCH):
            (begun.add if event.kind == "delivered" else begun.discard)((event.id, event.attempt))
        if len(begun) >= HIT:
            return True
        victim.send_signal(signal.SIGCONT)
        return False

    eventually(lambda: is_half_done() or is_over())
    world.kill(victim)
