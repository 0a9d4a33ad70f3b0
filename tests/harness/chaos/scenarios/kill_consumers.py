"""Consumers are killed and replaced every few seconds while messages flow."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

from tests.harness import bookkeeping
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

LEASE = 2.0
RECOVERY_SECONDS = LEASE + 1
CONSUMERS = 3
KEPT = 10_000_000  # ledger entries: all of them


def run(world: World) -> Verdict:
    """Kill a consumer every 1 to 3 s: each message is handled at most a lease and a second after that."""
    server = world.server()
    lease = world.lease(LEASE)
    queue = world.queue(server.url, lease=lease)
    queue.configure(events=KEPT)
    count, delay, work = world.pick((3_000, 4.0, 0.01), (100_000, 30.0, 0.0005))
    total, most = count, world.pick(3, 1_000)
    task = {"lease": lease, "work": work, "fail_every": 50}
    producer = world.producer(server.url, "work", name="m", count=count, batch=200, delays=(0.0, delay))
    consumers = [world.consumer(server.url, "work", **task) for _ in range(CONSUMERS)]
    kills = in_flight = 0

    def is_over() -> bool:
        return producer.poll() is not None and queue.stats().inside == 0

    while not (is_over() and queue.stats().lease_lost):
        world.check_time(queue)
        if is_over():  # this process paused, or each kill came when nothing was running
            producer = world.producer(server.url, "work", name=f"more-{kills}", count=count, batch=200)
            total, most = total + count, kills + 1
        time.sleep(world.dice.uniform(1, 3) if kills else 0)
        if kills < most:
            strike(world, consumers, is_over)
            in_flight += queue.stats().unack  # including those of live consumers: the server does not know the holder
            kills += 1
            consumers.append(world.consumer(server.url, "work", **task))
    world.finish(producer)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=lease)
    lost = queue.stats().lease_lost
    world.figures |= {"kills": str(kills), "in flight at them": f"{in_flight:,}", "leases lost": f"{lost:,}"}
    if verdict.sends != total:
        raise Broken(f"{verdict.sends} of {total} sends were acknowledged, though the server was there all the time")
    if verdict.duplicates > in_flight:
        raise Broken(f"{verdict.duplicates} duplicates, though {in_flight} were in flight at the kills")
    bookkeeping.check(queue)
    if verdict.buried:
        raise Broken(f"{verdict.buried} messages died, though there is none that kills its consumer")
    if world.size == "long" and verdict.worst_recovery > RECOVERY_SECONDS:
        raise Broken(f"a message was handled {verdict.worst_recovery:.2f} s after its consumer's death; {verdict}")
    return verdict


def strike(
    world: World, consumers: list[subprocess.Popen[bytes]], is_over: Callable[[], bool], seconds: float = 240
) -> None:
    """Stop and then kill a consumer whose journal ends with a started handler, and remove it from the list.

    Kill any of them if nothing is left to do, or if none is caught within `seconds`.
    """
    shuffled = world.dice.sample(consumers, len(consumers))
    caught: list[subprocess.Popen[bytes]] = []

    def is_caught() -> bool:
        for victim in shuffled:
            path = world.folder / f"consumer-{victim.pid}.jsonl"
            victim.send_signal(signal.SIGSTOP)
            os.waitpid(victim.pid, os.WUNTRACED)  # until it is stopped
            lines = path.read_bytes().splitlines() if path.exists() else []
            if lines and b'"delivered"' in lines[-1]:
                caught.append(victim)
                return True
            victim.send_signal(signal.SIGCONT)
        return False

    eventually(lambda: is_caught() or is_over(), seconds)
    victim = (caught or shuffled)[0]
    consumers.remove(victim)
    world.kill(victim)
