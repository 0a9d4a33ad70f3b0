"""The clocks of producers and consumers are a minute ahead or behind; one of each is stepped while messages flow.

programs/clocked.py says which clocks of a process are wrong.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import time
from typing import Any

import msgspec

from delayq import Queue
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.clocks import WrongClock, true_time
from tests.harness.chaos.programs import consume, produce
from tests.harness.chaos.world import Broken, World

OFFSETS = (60.0, -60.0, 0.0)  # of the clocks when they start; the last one is stepped
DELAY = 2.0
RETRIES_AFTER = 0.5
LEASE = 3.0
OUTLASTS = 1.0  # seconds that a slow handler takes longer, so that the heartbeat has to keep renewing the lease
UNNOTICED_MS = 2000  # an expired lease stays in Redis for a while: consumers check once a second
ROUNDING_MS = 1  # fractions of a millisecond are rounded up
SLEWED_MS = 100  # generous bound for how far the machine's clock may drift from its monotonic clock during a run
BESIDE = 50  # messages that expire, and as many that are sent with `at`


def run(world: World) -> Verdict:
    """Nothing is lost or early, and every time in Redis is from the server's clock."""
    url, lease = world.server().url, world.lease(LEASE)
    queue = world.queue(url, lease=lease)
    clocks = [WrongClock(world.folder / f"clock-{number}", offset) for number, offset in enumerate(OFFSETS)]
    count = world.pick(300, 20_000)
    common: dict[str, Any] = {"url": url, "queue": "work", "journals": str(world.folder)}
    producers, consumers = [], []
    for number, clock in enumerate(clocks):
        rate, batch = count / world.pick(4, 60), world.pick(1, 10)
        sending = produce.Task(**common, name=f"m{number}", count=count, rate=rate, batch=batch, delays=(DELAY, DELAY))
        producers.append(start(world, clock, "produce", sending))
        work = lease + OUTLASTS if number == 1 else 0.002
        handling = consume.Task(**common, lease=lease, work=work, fail_every=20, retries_after=RETRIES_AFTER)
        consumers.append(start(world, clock, "consume", handling))
    send_beside(world, queue)
    leases = 0
    next_step = time.monotonic()
    while any(producer.poll() is None for producer in producers):
        if time.monotonic() >= next_step:
            clocks[-1].set(world.dice.choice(OFFSETS))
            next_step = time.monotonic() + world.dice.uniform(0.2, 1.0)
        leases += check_scores(queue, lease)
        time.sleep(0.005)
    for producer in producers:
        world.finish(producer)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    world.figures |= {"steps": f"{len(clocks[-1].offsets()) - 1}", "leases looked at": f"{leases:,}"}
    check_dues(world)
    verdict, stats = world.verdict(queue), queue.stats()
    if verdict.sends != len(OFFSETS) * count + 2 * BESIDE or not leases:
        raise Broken(f"{verdict.sends} messages were sent, {leases} leases were looked at: both are too few")
    if verdict.duplicates or verdict.buried or stats.expired or stats.lease_lost:
        raise Broken(f"no process has failed, and yet: {verdict}; {stats}")
    return verdict


def start(world: World, clock: WrongClock, name: str, task: msgspec.Struct) -> subprocess.Popen[bytes]:
    """Start a program with a wrong clock."""
    clocked = ["-m", "tests.harness.chaos.programs.clocked", "client", str(clock.path), name]
    return world.run(sys.executable, *clocked, msgspec.json.encode(task).decode())


def send_beside(world: World, queue: Queue) -> None:
    """Send messages that a consumer with a wrong clock could take for expired or not due."""
    due_at = dt.datetime.fromtimestamp(true_time() + DELAY, dt.UTC)
    for number in range(BESIDE):
        world.send(queue, number, f"expiring-{number}", delay=DELAY * (number + 1) / BESIDE, expires_in=50.0)
        world.send(queue, number, f"at-{number}", at=due_at)


def check_scores(queue: Queue, lease: float) -> int:
    """Compare the times in Redis with the server's clock; return how many leases of this length there were."""
    keys = queue._context.shards[0].keys
    client: Any = queue._executor.client
    with client.pipeline(transaction=True) as pipe:
        pipe.time()
        for key in (keys.unack, keys.retry, keys.pending):
            pipe.zrange(key, 0, -1, withscores=True)
        (seconds, micros), leases, retries, dues = pipe.execute()
    now = seconds * 1000 + micros / 1000
    latest = now + ROUNDING_MS
    wrong = [(id, score - now) for id, score in leases if not now - UNNOTICED_MS < score < latest + lease * 1000]
    wrong += [(id, score - now) for id, score in retries if score > latest + RETRIES_AFTER * 1000]
    wrong += [(id, score - now) for id, score in dues if score > latest + DELAY * 1000]
    if wrong:
        raise Broken(f"by the server's clock, these times are impossible (ms from now): {wrong[:5]}")
    return len(leases)


def check_dues(world: World) -> None:
    """Compare the due times that producers got with the machine's clock, which is also the server's."""
    events = history.read(world.folder)
    attempts = {event.id: event.at for event in events if event.kind == "attempted"}
    true = (true_time() - time.monotonic() + DELAY) * 1000
    for event in events:
        if event.kind == "sent" and event.id.startswith("m"):
            earliest, latest = (at * 1000 + true for at in (attempts[event.id], event.at))
            if not earliest - SLEWED_MS < event.ms < latest + SLEWED_MS:
                raise Broken(f"{event.id} is due {event.ms - earliest:.0f} ms after the time that was asked for")
