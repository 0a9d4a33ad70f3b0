"""Producers and consumers of this version and of the one before share a queue, and consumers of both are killed."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from tests.harness import previous
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.scenarios.kill_consumers import strike
from tests.harness.chaos.world import STOP_SECONDS, Broken, World

LEASE = 3.0
RATE = 150.0
LATER = {"format": "2", "needs": "1 0.1.0"}  # the version before does not know `needs`, and reads the format


def run(world: World) -> Verdict:
    """Each message is handled; a client that lacks what the data need ends by itself, and loses nothing."""
    server, old = world.server(), previous.installed(world.folder)
    lease = world.lease(LEASE)
    queue = world.queue(server.url, lease=lease)
    queue.stats()
    queue.configure(concurrency_per_key=50)
    count, kills = world.pick((200, 2), (9_000, 30))
    task: dict[str, Any] = {"lease": lease, "work": 0.01, "fail_every": 20, "then_every": 9, "keyed": True}

    def consuming(version: Path | None) -> subprocess.Popen[bytes]:
        world.version = version
        return world.consumer(server.url, "work", **task)

    def producing(version: Path | None) -> subprocess.Popen[bytes]:
        world.version = version
        return world.producer(server.url, "work", name="old" if version else "new", rate=RATE, batch=5, count=count)

    producers = [producing(version) for version in (None, old)]
    fleets = {version: [consuming(version), consuming(version)] for version in (None, old)}
    for number in range(kills):
        time.sleep(world.dice.uniform(0.3, world.pick(0.6, 3)))
        version = (None, old)[number % 2]
        strike(world, fleets[version], lambda: all(each.poll() is not None for each in producers), 10)
        fleets[version].append(consuming(version))
    for producer in producers:
        world.finish(producer)
    world.drain(queue)
    taken = {version: handled(world, fleet) for version, fleet in fleets.items()}
    world.figures |= {"handled by this version": str(taken[None]), "by the one before": str(taken[old])}
    if not all(taken.values()):
        raise Broken(f"one version has handled nothing: {taken}")
    outdate(world, fleets[old], server.url)
    for consumer in fleets[None]:
        world.stop(consumer)
    return world.verdict(queue)


def outdate(world: World, consumers: list[subprocess.Popen[bytes]], url: str) -> None:
    """Let the data need what the version before lacks while it works: its consumers end, the others continue."""
    queue, world.version = world.queue(url), None
    producer = world.producer(url, "work", name="later", count=world.pick(100, 1000), batch=5, delays=(0.0, 0.5))
    meta = queue._context.shards[0].keys.meta
    for name, value in LATER.items():
        queue._executor.client.hset(meta, name, value)
    for consumer in consumers:
        if not consumer.wait(STOP_SECONDS):
            raise Broken("a consumer that lacks what the data need has ended without an error")
    if (said := world.log(lines=10_000)).count("FormatTooNew") < len(consumers):
        raise Broken(f"it does not say why: {said[-2000:]}")
    world.finish(producer)
    world.drain(queue)


def handled(world: World, consumers: list[subprocess.Popen[bytes]]) -> int:
    """Return how many messages these consumers have finished."""
    pids = {consumer.pid for consumer in consumers}
    return sum(event.kind == "finished" and event.pid in pids for event in history.read(world.folder))
