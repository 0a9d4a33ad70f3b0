"""Consumers of batches are killed, again and again, in the middle of one."""

from __future__ import annotations

import signal
import subprocess

from tests.faults import history
from tests.faults.checker import Verdict
from tests.faults.world import Broken, World
from tests.waiting import eventually

LEASE = 1.0
CONSUMERS = 2
BATCH = 50
RETRIES = {"max_retries": 20}  # a batch is hit as a whole
HIT = 2  # messages at least


def run(world: World) -> Verdict:
    """Kill a consumer whenever it is in the middle of a batch: each message is handled in the end."""
    server = world.server()
    queue = world.queue(server.url, lease=LEASE)
    count = world.pick(2_000, 20_000)
    most = world.pick(3, 60)
    task = {"lease": LEASE, "max_messages": BATCH, "max_wait": 0.05, "work": 0.02, "fail_every": 50}
    producer = world.producer(
        server.url, "work", name="m", count=count, batch=200, delays=(0.0, world.pick(3.0, 30.0)), options=RETRIES
    )
    consumers = [world.batch(server.url, "work", **task) for _ in range(CONSUMERS)]
    kills = 0
    while kills < most and not (producer.poll() is not None and queue.stats().inside == 0):
        victim = consumers.pop(world.dice.randrange(CONSUMERS))
        strike(world, victim)
        kills += 1
        consumers.append(world.batch(server.url, "work", **task))
    world.finish(producer)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=LEASE)
    stats = queue.stats()
    world.figures |= {"kills": str(kills), "leases lost": f"{stats.lease_lost:,}"}
    done = {event.id for event in history.read(world.folder) if event.kind == "finished"}
    if len(done) != count or stats.acked != count:
        raise Broken(f"{count} messages: {len(done)} were handled, and {stats.acked} acked; {verdict}")
    if stats.lease_lost < HIT:
        raise Broken(f"{kills} kills have hit {stats.lease_lost} messages: no batch was in their middle")
    return verdict


def strike(world: World, victim: subprocess.Popen[bytes]) -> None:
    """Kill a consumer in the middle of a batch; it stands still while its journal is looked at."""
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

    eventually(is_half_done, 10)
    world.kill(victim)
