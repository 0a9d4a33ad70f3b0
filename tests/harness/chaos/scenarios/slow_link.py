"""Small and large messages pass a slow link, first up and then down, and have no retries."""

from __future__ import annotations

import math
import time
from typing import Any

from delayq import Outgoing, Queue
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World
from tests.harness.throttle import Throttle

LEASE = 5.0  # a message of 10 MB takes 17 s on the slower link
CONSUMERS = 2
SMALLEST, LARGEST = 100, 10_000_000  # bytes
RATES = {"fast": 9_000_000, "slow": 600_000}  # bytes a second
SHARE = 0.8  # minimum share of the link's capacity


def run(world: World) -> Verdict:
    """Each message is delivered once, none dies unseen, and the link is well used in both directions."""
    return [measure(world, name, rate) for name, rate in RATES.items()][-1]  # the last one checks everything


def measure(world: World, name: str, rate: int) -> Verdict:
    """Send as much as the link carries in some time, and handle it."""
    server = world.server(appendonly=False)
    lease = world.lease(LEASE)
    options: dict[str, Any] = {"lease": lease, "max_retries": 0, "max_payload": LARGEST}
    queue = world.queue(server.url, name, **options)
    messages = drawn(world, name, rate * world.pick(1, 60))
    size = sum(len(message.payload) for message in messages)
    with Throttle(server.socket, rate) as link:
        began = time.monotonic()
        send(world, world.queue(link.url, name, **options), messages)
        report_share(world, name, "up", size / (time.monotonic() - began) / rate)
        task = {"lease": lease, "options": {"max_retries": 0, "max_payload": LARGEST}}
        consumers = [world.consumer(link.url, name, **task) for _ in range(CONSUMERS)]
        began = time.monotonic()
        world.drain(queue, 10 * size / rate + 60)
        report_share(world, name, "down", size / (time.monotonic() - began) / rate)
        for consumer in consumers:
            world.stop(consumer)
    verdict = world.verdict(queue, lease=lease)
    stats = queue.stats()
    if (stats.delivered, stats.acked, stats.lease_lost, stats.released) != (len(messages), len(messages), 0, 0):
        raise Broken(f"{len(messages)} messages were not delivered once each: {stats}; {verdict}")
    return verdict


def drawn(world: World, name: str, size: int) -> list[Outgoing]:
    """Return messages of all sizes, as many small as large ones, with `size` bytes in total."""
    largest, found, left = min(LARGEST, size), list[Outgoing](), size
    while left > 0:
        length = round(math.exp(world.dice.uniform(math.log(SMALLEST), math.log(largest))))
        found.append(Outgoing(world.dice.randbytes(length), id=f"{name}-{len(found)}"))
        left -= length
    return found


def send(world: World, queue: Queue, messages: list[Outgoing]) -> None:
    for message in messages:
        world.journal.note("attempted", message.id or "")
    for sent in queue.send_many(messages):
        world.journal.note("sent", sent.id, ms=sent.due_at.timestamp() * 1000)


def report_share(world: World, name: str, direction: str, share: float) -> None:
    world.figures[f"{name} {direction}:"] = f"{share:.0%} of the link"
    if world.size == "long" and share < SHARE:
        raise Broken(f"the {name} link is used badly: {world.figures}; {world.log()}")
