"""Consumers that drive schedules are killed every second: each slot fires once, and none is skipped."""

from __future__ import annotations

import time
from collections import defaultdict

from delayq.model.occurrence import occurrence_id
from delayq.model.units import timestamp_ms
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.scenarios.kill_consumers import strike
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

LEASE = 2.0
STEP_MS = 1000
SLACK = 600  # slots that may fire after the last kill


def run(world: World) -> Verdict:
    """Kill a consumer each second, if possible in the middle of its work, while schedules fire each second."""
    server = world.server()
    lease = world.lease(LEASE)
    queue = world.queue(server.url, lease=lease)
    count, names, kills = world.pick((3, 2, 4), (8, 5, 150))
    starts: dict[str, int] = {}
    for name in (f"tick{number}" for number in range(names)):
        added = queue.schedules.add(name, "* * * * * *", missed="all", max_retries=50)
        assert added.next_at is not None
        starts[name] = timestamp_ms(added.next_at)
        for slot in range(kills + SLACK):
            world.journal.note("attempted", occurrence_id(name, starts[name] + STEP_MS * slot, 1))
    task = {"lease": lease, "work": 0.2}
    consumers = [world.consumer(server.url, "work", **task) for _ in range(count)]
    if not eventually(lambda: queue.stats().acked > 0):
        raise Broken(f"no slot was fired; {world.log()}")
    for _ in range(kills):
        began = time.monotonic()
        # Redeliveries come one lease after the last kill. At a fixed interval, they would be hit each time.
        time.sleep(world.dice.uniform(0, 0.5))
        strike(world, consumers, lambda: False, world.pick(60.0, 0.4))  # with only a few kills, some must hit
        consumers.append(world.consumer(server.url, "work", **task))
        time.sleep(max(0.0, began + 1 - time.monotonic()))
    for name in starts:
        queue.schedules.remove(name)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    fired = reported_slots(world, starts)
    verdict = world.verdict(queue, lease=lease)
    if verdict.buried:
        died = [(each.id, each.attempts, each.reason, each.error) for each in queue.dead.list()]
        raise Broken(f"messages died, though each is retried 50 times: {died}; {verdict}")
    stats = queue.stats()
    slots = sum(fired.values())
    world.figures |= {"kills": str(kills), "slots": f"{slots:,}", "leases lost": f"{stats.lease_lost:,}"}
    if (stats.acked, stats.sent) != (slots, slots + stats.cancelled):
        raise Broken(
            f"{slots} slots: {stats.sent} were sent, {stats.acked} acked, {stats.cancelled} cancelled; {verdict}"
        )
    if min(fired.values()) < kills // 2 or not stats.lease_lost:
        raise Broken(f"too little has happened: {fired}, {stats.lease_lost} leases lost; {verdict}")
    return verdict


def reported_slots(world: World, starts: dict[str, int]) -> dict[str, int]:
    """Note as sent what each schedule has sent, up to the last slot fired; return the number per schedule."""
    seen: dict[str, set[int]] = defaultdict(set)
    for event in history.read(world.folder):
        if event.kind == "delivered":
            name, _, slot_ms = event.id.partition("@")
            seen[name].add(int(slot_ms))
    for name, start in starts.items():
        slots = range(start, max(seen[name], default=start) + 1, STEP_MS)
        if wrong := seen[name].symmetric_difference(slots):
            raise Broken(f"{name}: {sorted(wrong)[:5]} are left out, or are no slots")
        for slot in slots:
            world.journal.note("sent", occurrence_id(name, slot, 1), ms=float(slot))
    return {name: len(slots) for name, slots in seen.items()}
