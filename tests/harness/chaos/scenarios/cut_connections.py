"""Connections are cut every few hundred commands, before, after or within them, and at times all at once."""

from __future__ import annotations

import random
import subprocess
import time

from delayq import Queue
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World
from tests.harness.proxy import WAYS, Cut, Proxy
from tests.harness.waiting import eventually

LEASE = 2.0
ODDS = 1 / 200  # probability that a command is cut
OUTAGE_SECONDS = (0.1, 0.8)
# A lease that has just started, a check each second, and an outage followed by the longest wait.
RECOVERY_SECONDS = LEASE + 1 + OUTAGE_SECONDS[1] + 1
CONSUMERS = PRODUCERS = 2
FEWEST_CUTS = 10  # with fewer, the run shows nothing


class Cutter:
    """Decides by the seed which commands are cut, and notes it."""

    def __init__(self, world: World) -> None:
        self._journal = world.journal
        self._dice = random.Random(f"{world.seed} cuts")

    def __call__(self, name: str) -> Cut | None:
        if self._dice.random() >= ODDS:
            return None
        way = self._dice.choice(WAYS)
        self._journal.note("fault", pid=0, note=f"cut {way} {name}")
        self._journal.note("recovered", pid=0)
        return Cut(way)


def run(world: World) -> Verdict:
    """Every acknowledged message is handled; a message sent twice exists only once."""
    server = world.server()
    lease = world.lease(LEASE)
    count, rate = world.pick((1_500, 300), (25_000, 500))
    outages = 0
    with Proxy(server.socket, Cutter(world)) as proxy, Queue("work", url=server.url, lease=lease) as queue:
        consumers = [
            world.consumer(proxy.url, "work", lease=lease, work=0.001, fail_every=50) for _ in range(CONSUMERS)
        ]
        producers = [
            world.producer(proxy.url, "work", name=f"p{number}", count=count, batch=3, rate=rate, again=True)
            for number in range(PRODUCERS)
        ]
        if not eventually(lambda: all(has_begun(world, consumer) for consumer in consumers)):
            raise Broken(f"a consumer has handled nothing; {world.log()}")
        while any(producer.poll() is None for producer in producers):
            time.sleep(world.dice.uniform(0.5, 2))
            with world.trouble("all connections are cut"):
                proxy.cut()
                time.sleep(world.dice.uniform(*OUTAGE_SECONDS))
                proxy.mend()
            outages += 1
        for producer in producers:
            world.finish(producer)
        world.drain(queue)
        for consumer in consumers:
            world.stop(consumer)
        verdict = world.verdict(queue)
    world.figures |= {"cuts": str(proxy.cuts), "outages": str(outages)}
    if verdict.sends != count * PRODUCERS:
        raise Broken(f"{verdict.sends} of {count * PRODUCERS} sends were acknowledged, though they were repeated")
    if proxy.cuts < FEWEST_CUTS:
        raise Broken(f"only {proxy.cuts} connections were cut")
    if world.size == "long" and verdict.worst_recovery > RECOVERY_SECONDS:
        raise Broken(f"a message was handled {verdict.worst_recovery:.2f} s after a cut")
    return verdict


def has_begun(world: World, consumer: subprocess.Popen[bytes]) -> bool:
    journal = world.folder / f"consumer-{consumer.pid}.jsonl"
    return journal.exists() and journal.stat().st_size > 0
