"""Four consumers share a rate; one of them is killed and replaced in the middle."""

from __future__ import annotations

import time
from itertools import pairwise

from delayq.model.rate_text import parse_rate
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

LEASE = 5.0
CONSUMERS = 4
SHARE = 0.98  # minimum share of the rate that is used while there is a backlog
RATES = ("100/s", "1000/s", "20/100ms")


def run(world: World) -> Verdict:
    """By the server's clock, no period has more deliveries than the rate allows, and hardly any has fewer."""
    return [measure(world, rate) for rate in world.pick(("20/200ms",), RATES)][-1]  # the last one checks everything


def measure(world: World, rate: str) -> Verdict:
    """Let consumers work off a backlog for a while, and then without a limit."""
    most, period_ms = parse_rate(rate)
    seconds = world.pick(3, 30)
    allowed = most * round(seconds * 1000 / period_ms)
    name = "work-" + rate.replace("/", "-")
    server = world.server()
    lease = world.lease(LEASE)
    queue = world.queue(server.url, name, lease=lease)
    task = {"lease": lease, "options": {"rate": rate}}
    consumers = [world.consumer(server.url, name, **task) for _ in range(CONSUMERS)]
    if not eventually(lambda: queue.configuration().rate == rate):
        raise Broken(f"no consumer has stored its rate: {world.log()}")
    producer = world.producer(server.url, name, name=name, count=round(1.3 * allowed), batch=500, delays=(0.0, 0.0))
    world.finish(producer)
    time.sleep(seconds / 2)
    world.kill(consumers.pop(world.dice.randrange(CONSUMERS)))
    consumers.append(world.consumer(server.url, name, **task))
    time.sleep(seconds / 2 + 1)
    ended_us = handed_out(world, name)[-1]
    queue.configure(rate=None)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=lease)
    moments = [each for each in handed_out(world, name) if each <= ended_us]
    shortest = min(after - before for before, after in zip(moments, moments[most:], strict=False))
    if shortest < period_ms * 1000:
        raise Broken(f"{rate}: {most + 1} deliveries within {shortest / 1000} ms; {verdict}")
    gone = sum(each < moments[0] + seconds * 1_000_000 for each in moments)
    pauses = sorted((after - before for before, after in pairwise(moments)), reverse=True)
    world.figures[rate] = f"{gone:,} of {allowed:,} in {seconds} s ({gone / allowed:.1%})"
    if world.size == "long" and gone < SHARE * allowed:
        raise Broken(f"{rate}: {world.figures[rate]}; the longest pauses, us: {pauses[:5]}; {verdict}")
    return verdict


def handed_out(world: World, name: str) -> list[int]:
    """Return the times when messages of a queue were handed out, in microseconds of the server's clock, in order."""
    events = history.read(world.folder)
    return sorted(round(each.ms * 1000) for each in events if each.kind == "delivered" and each.id.startswith(name))
