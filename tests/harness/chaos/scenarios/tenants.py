"""Three tenants with 100:10:1 traffic share consumers under a limit per key, and consumers are killed."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable

from delayq.model.queue_stats import QueueStats
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.history import Event
from tests.harness.chaos.scenarios.kill_consumers import strike
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

LEASE = 3.0
CONSUMERS = 4
PER_KEY = 4
SHARES = {"big": 100, "middle": 10, "small": 1}
BEARABLE_SECONDS = 0.5  # the limits for 50 % and for 90 % of the messages of a tenant within its share
SELDOM_SECONDS = LEASE + 1


def run(world: World) -> Verdict:
    """No tenant ever runs more than its share, and tenants within their share do not wait for the big one."""
    server = world.server()
    lease = world.lease(LEASE)
    queue = world.queue(server.url, lease=lease)
    queue.stats()
    queue.configure(concurrency_per_key=PER_KEY)
    unit, seconds, work = world.pick((10, 0.0, 0.01), (200, 60.0, 0.02))
    producers = [
        world.producer(
            server.url,
            "work",
            name=name,
            count=unit * share,
            batch=min(share, 20),
            delays=(0.0, 0.1),
            rate=unit * share / seconds if seconds else 0,
        )
        for name, share in SHARES.items()
    ]
    for producer in world.pick(producers, []):  # otherwise the big tenant may be done before a slow producer starts
        world.finish(producer)
    task = {"lease": lease, "work": work, "keyed": True, "fail_every": 50}
    consumers = [world.consumer(server.url, "work", **task) for _ in range(CONSUMERS)]
    if not eventually(lambda: queue.stats().acked > 0):
        raise Broken(f"nothing was handled: {queue.stats()}; {world.log()}")
    await_small_ones(world, count=world.pick(unit * (SHARES["middle"] + SHARES["small"]), 1))
    kills = most_waiting = more = 0
    most = world.pick(2, 1_000)

    def is_over() -> bool:
        return all(producer.poll() is not None for producer in producers) and not queue.stats().inside

    while not (is_over() and queue.stats().lease_lost):
        world.check_time(queue)
        if is_over():  # this process paused, or each kill came when nothing was running
            producers.append(world.producer(server.url, "work", name=f"big-{kills}", count=unit, batch=unit))
            more, most = more + unit, kills + 1
        time.sleep(world.dice.uniform(*world.pick((0.5, 1.0), (4.0, 8.0))))
        most_waiting = max(most_waiting, queue.stats().pending)
        if kills < most:
            strike(world, consumers, is_over)
            consumers.append(world.consumer(server.url, "work", **task))
            kills += 1
    for producer in producers:
        world.finish(producer)
    world.drain(queue)
    keys = queue._context.shards[0].keys
    if not eventually(lambda: not queue._executor.client.exists(keys.slots, keys.waiting, keys.parked), 30):
        raise Broken(f"slots are held in vain: {queue._executor.client.zrange(keys.slots, 0, 10)}")
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue, lease=lease)
    world.figures |= {"kills": str(kills), "most that waited": f"{most_waiting:,}"}
    events = history.read(world.folder)
    judge_shares(world, queue.stats(), events, unit * sum(SHARES.values()) + more)
    judge_order(world, events)
    return verdict


def await_small_ones(world: World, count: int) -> None:
    """Wait until this many messages of tenants within their share have started.

    In the short form, all of them start before the first kill, because a killed consumer may hold all slots of a tenant
    for a lease, which is long enough for all messages of the big tenant.
    """

    def have_begun() -> bool:
        begun = {event.id for event in history.read(world.folder) if event.kind == "delivered"}
        return sum(not each.startswith("big-") for each in begun) >= count

    if not eventually(have_begun):
        raise Broken(f"those within their share have not begun: {world.log()}")


def judge_shares(world: World, stats: QueueStats, events: Iterable[Event], count: int) -> None:
    """Check that no tenant had more than its share, though it had the messages, and that everything was handled."""
    most = most_running(events)
    world.figures |= {"leases lost": f"{stats.lease_lost:,}", "held back": f"{stats.held_back:,}"}
    world.figures |= {"most that ran": str(dict(most))}
    if max(most.values()) > PER_KEY:
        raise Broken(f"{dict(most)} ran at a time, though {PER_KEY} of each may")
    if most["big"] < PER_KEY or not stats.held_back:
        raise Broken(f"the limit was never reached: {dict(most)}")
    if stats.acked != count:
        raise Broken(f"{stats.acked} were acked of {count}")


def most_running(events: Iterable[Event]) -> Counter[str]:
    """Return the maximum number of concurrent handlers per tenant; handlers end with their process."""
    running: dict[str, set[tuple[int, str]]] = defaultdict(set)
    most: Counter[str] = Counter()
    for event in events:
        tenant = running[event.id.split("-")[0]]
        if event.kind == "delivered":
            tenant.add((event.pid, event.id))
            most[event.id.split("-")[0]] = max(most[event.id.split("-")[0]], len(tenant))
        elif event.kind in {"finished", "failed"}:
            tenant.discard((event.pid, event.id))
        elif event.kind == "fault":
            for each in running.values():
                each.difference_update({one for one in each if one[0] == event.pid})
    return most


def judge_order(world: World, events: Iterable[Event]) -> None:
    """Check that tenants within their share are done while the big one waits, in the long form soon after due."""
    firsts = [event for event in events if event.kind == "delivered" and event.attempt == 1]
    begun = {name: [event for event in firsts if event.id.split("-")[0] == name] for name in SHARES}
    for name in ("middle", "small"):
        last = begun[name][-1]
        behind = sum(event.at > last.at for event in begun["big"])
        if not behind:
            raise Broken(f"the last of {name} has waited for all of the big one's")
        late = sorted((event.ms - event.due_ms) / 1000 for event in begun[name])
        half, nine, all_but_few = (late[int(len(late) * share)] for share in (0.5, 0.9, 0.99))
        world.figures |= {
            f"{name} late": f"50% {half:.3f} s, 90% {nine:.3f} s, 99% {all_but_few:.3f} s, {late[-1]:.3f} s"
        }
        if world.size == "long" and (nine > BEARABLE_SECONDS or all_but_few > SELDOM_SECONDS):
            raise Broken(f"{name} was late: {world.figures}")
    late = sorted((event.ms - event.due_ms) / 1000 for event in begun["big"])
    world.figures |= {"big late": f"50% {late[len(late) // 2]:.1f} s, {late[-1]:.1f} s"}
