"""A long run of messages that are handled, fail, move, are replaced, cancelled, dead, and requeued."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from delayq import Queue
from delayq.model.placement import STATES
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World

RATE = 200.0  # messages a second
GROWTH = 1.01  # maximum growth of resident memory
LONG_SECONDS = float(os.environ.get("DELAYQ_SOAK_SECONDS", "1200"))
WARM_SHARE = 0.2  # share of the time for warming up: imports, pools, the first retries
CONSUMERS = 2
FIXED_KEYS = 19 + CONSUMERS
"""All that this queue may have beside its messages, see delayq/protocol/queue_keys.py: six states, attempts, errors,
reasons, cancelled, bell, timer, watch, stats, meta, consumers, crew, two of samples; and for each consumer its last
claim."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def run(world: World) -> Verdict:
    """The only keys are fixed ones and those of the messages inside, at any time; the consumers do not grow."""
    seconds = world.pick(4.0, LONG_SECONDS)
    server = world.server()
    lease = world.lease(5.0)
    queue = world.queue(server.url, lease=lease, max_retries=1)
    options = {"max_retries": 1}
    count = int(seconds * RATE)
    producer = world.producer(server.url, "work", name="m", count=count, delays=(0.0, 2.0), rate=RATE, options=options)
    consumers = [
        world.consumer(server.url, "work", lease=lease, fail_every=20, options=options) for _ in range(CONSUMERS)
    ]
    began = time.monotonic()
    memory: dict[int, list[int]] = {consumer.pid: [] for consumer in consumers}
    beside: list[int] = []
    number = 0
    while producer.poll() is None:
        number += 1
        keep(world, queue, number)
        beside.append(keys_beside(queue))
        for pid, samples in memory.items():
            if time.monotonic() - began > WARM_SHARE * seconds:
                samples.append(resident(pid))
        time.sleep(world.pick(0.1, 1.0))
    world.finish(producer)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    growth = max(grown(samples) for samples in memory.values())
    world.figures["keys beside messages"] = f"{min(beside)}–{max(beside)}"
    if world.size == "long":
        world.figures["memory"] = f"{growth - 1:+.2%} of {max(map(max, memory.values())) / 2**20:.0f} MiB"
    if max(beside) > FIXED_KEYS:
        raise Broken(f"{max(beside)} keys beside those of messages: a queue has {FIXED_KEYS} at most")
    if world.size == "long" and growth > GROWTH:
        raise Broken(f"the consumers' resident memory has grown by {growth - 1:.2%}: {memory}")
    return world.verdict(queue)


def keep(world: World, queue: Queue, number: int) -> None:
    """Do once everything that producers and operators do beside sending."""
    world.send(queue, "moved", f"moved-{number}", delay=0.2)
    queue.reschedule(f"moved-{number}", delay=0.4)
    world.send(queue, "replaced", f"replaced-{number}", delay=3600)
    world.send(queue, "replaced", f"replaced-{number}", delay=7200, on_conflict="replace")
    cancel(world, queue, f"replaced-{number}")
    world.send(queue, "dies", f"dead-{number}", max_retries=0)
    for letter in queue.dead.list():
        cancel(world, queue, letter.id)


def cancel(world: World, queue: Queue, id: str) -> None:
    if queue.cancel(id) == "cancelled":
        world.journal.note("cancelled", id)


def keys_beside(queue: Queue) -> int:
    """Return the number of keys that do not belong to messages."""
    client: Any = queue._executor.client
    keys = queue._context.shards[0].keys
    with client.pipeline(transaction=True) as together:
        together.dbsize()
        for state in STATES:
            together.zcard(keys.state(state))
        all_keys, *inside = together.execute()
    return int(all_keys - sum(inside))


def resident(pid: int) -> int:
    """Return the resident memory of a process, bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def grown(samples: list[int]) -> float:
    """Return the ratio of the last tenth of the samples to the first."""
    tenth = max(1, len(samples) // 10)
    return statistics.mean(samples[-tenth:]) / statistics.mean(samples[:tenth])
