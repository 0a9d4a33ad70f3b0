"""Consumers are killed every few seconds, and replaced, while messages flow."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tests import bookkeeping
from tests.faults.checker import Verdict
from tests.faults.world import Broken, World
from tests.waiting import eventually

LEASE = 2.0
RECOVERY_SECONDS = LEASE + 1
CONSUMERS = 3
KEPT = 10_000_000  # entries of the ledger: all


def run(world: World) -> Verdict:
    """Kill a consumer every 1 to 3 s: each message is handled at most a lease and a second after that."""
    server = world.server()
    queue = world.queue(server.url, lease=LEASE)
    queue.configure(events=KEPT)
    count, delay, work = world.pick((3_000, 4.0, 0.01), (100_000, 30.0, 0.0005))
    most = world.pick(3, 1_000)
    task = {"lease": LEASE, "work": work, "fail_every": 50}
    producer = world.producer(server.url, "work", name="m", count=count, batch=200, delays=(0.0, delay))
    consumers = [world.consumer(server.url, "work", **task) for _ in range(CONSUMERS)]
    kills = in_flight = 0
    while kills < most and not (producer.poll() is not None and queue.stats().inside == 0):
        time.sleep(world.dice.uniform(1, 3))
        victim = consumers.pop(world.dice.randrange(CONSUMERS))
        strike(world, victim)
        in_flight += queue.stats().unack  # of the living, too: whose each one was, the server does not know
        kills += 1
        consumers.append(world.consumer(server.url, "work", **task))
    world.finish(producer)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=LEASE)
    lost = queue.stats().lease_lost
    world.figures |= {"kills": str(kills), "in flight at them": f"{in_flight:,}", "leases lost": f"{lost:,}"}
    if verdict.sends != count:
        raise Broken(f"{verdict.sends} of {count} sends were acknowledged, though the server was there all the time")
    if not lost:
        raise Broken(f"{kills} kills have hit nothing")
    if verdict.duplicates > in_flight:
        raise Broken(f"{verdict.duplicates} duplicates, though {in_flight} were in flight at the kills")
    bookkeeping.check(queue)
    if verdict.buried:
        raise Broken(f"{verdict.buried} messages died, though there is none that kills its consumer")
    if world.size == "long" and verdict.worst_recovery > RECOVERY_SECONDS:
        raise Broken(f"a message was handled {verdict.worst_recovery:.2f} s after its consumer's death; {verdict}")
    return verdict


def strike(world: World, victim: subprocess.Popen[bytes]) -> None:
    """Kill a consumer, stopped first: if possible where its journal ends with a handler that has begun."""
    path = world.folder / f"consumer-{victim.pid}.jsonl"

    def is_caught() -> bool:
        victim.send_signal(signal.SIGSTOP)
        os.waitpid(victim.pid, os.WUNTRACED)  # until it stands
        lines = path.read_bytes().splitlines() if path.exists() else []
        if lines and b'"delivered"' in lines[-1]:
            return True
        victim.send_signal(signal.SIGCONT)
        return False

    eventually(is_caught, 10)
    world.kill(victim)
