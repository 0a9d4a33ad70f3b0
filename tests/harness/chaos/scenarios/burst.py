"""A million messages fall due at the same time, are buried, requeued, purged and collected, while another client PINGs.

It sends a PING every millisecond. Its longest wait is shown for each stage, with that for an idle server on the same
machine in brackets. Neither server writes to disk, because a flush would measure the disk.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

import msgspec

from delayq import Outgoing, Queue
from delayq.model.outcome import Dead
from delayq.model.placement import STATES
from delayq.operations import settle
from delayq.protocol.operation import execute
from delayq.protocol.queue_commands import MAX_IDS
from delayq.protocol.script import script
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.clocks import true_time
from tests.harness.chaos.pings import Pings, check_waits
from tests.harness.chaos.programs import tally
from tests.harness.chaos.world import ROOT, Broken, World
from tests.harness.waiting import eventually

SLOW_US = 5_000  # no script should take longer
SLOW_SHARE = 0.01  # share of a stage's calls that may, when the machine or the server's allocator pauses
CONSUMERS = 2
A_CALL = 10_000  # messages per send_many, which splits them itself
HOUR = 3600.0
CONFIG = {"slowlog-log-slower-than": str(SLOW_US), "slowlog-max-len": "100000"}


def run(world: World) -> Verdict:
    """Another client is served all the time, and every count is correct in the end."""
    count = world.pick(20_000, 1_000_000)
    server = world.server(appendonly=False, config=CONFIG)
    queue = world.queue(server.url)
    pings = Pings(world, busy=server, idle=world.server(appendonly=False))
    with pings.stage("idle"):
        time.sleep(world.pick(0.5, 10))
    verdict = burst(world, queue, server.url, count, pings)
    with pings.stage("send"):
        send(queue, count)
    with pings.stage("bury"):
        bury(queue)
    expect(queue, dead=count)
    with pings.stage("requeue"):
        queue.dead.requeue("all", delay=HOUR)
    expect(queue, pending=count)
    with pings.stage("purge"):
        queue.purge("pending")
    expect(queue, purged=count, collected=count)
    send(queue, count, delay=HOUR)
    with pings.stage("discard"):
        for scripts in queue._context.shards:
            while queue._executor.execute(execute(scripts.purge("pending"))):
                pass
    expect(queue, garbage=count)
    with pings.stage("collect"):
        queue.collect_garbage()
    expect(queue, purged=2 * count, collected=2 * count)
    waits, slow = pings.end(), slow_scripts(queue)
    found = [f"{name} {len(times)}, longest {max(times):.1f} ms" for name, times in sorted(slow.items())]
    world.figures[f"scripts over {SLOW_US // 1000} ms:"] = ", ".join(found) or "none"
    check_waits(world, waits)
    often = [name for name, times in slow.items() if len(times) > SLOW_SHARE * count / MAX_IDS]
    if world.size == "long" and often:
        raise Broken(f"scripts take longer than {SLOW_US // 1000} ms time and again: {often}; of all, {world.figures}")
    return replace(world.verdict(queue), **verdict)


def send(queue: Queue, count: int, **options: Any) -> None:
    for start in range(0, count, A_CALL):
        queue.send_many([Outgoing(number, **options) for number in range(start, min(start + A_CALL, count))])


def burst(world: World, queue: Queue, url: str, count: int, pings: Pings) -> dict[str, Any]:
    """Let messages fall due at the same time, and consumers handle them; return what that adds to the verdict."""
    task = msgspec.json.encode(tally.Task(url=url, queue="work", folder=str(world.folder), count=count)).decode()
    program = (sys.executable, "-m", "tests.harness.chaos.programs.tally", task)
    consumers = [world.run(*program) for _ in range(CONSUMERS)]
    client: Any = queue._executor.client
    if not eventually(lambda: client.info("clients")["blocked_clients"] == CONSUMERS):
        raise Broken(f"the consumers do not wait for messages: {world.log()}")
    instant = true_time() + world.pick(1, 45)
    if world.size == "short":
        queue.pause()  # so that all fall due at once, even if a busy machine takes long to send them
    with pings.stage("schedule"):
        send(queue, count, at=dt.datetime.fromtimestamp(instant, dt.UTC))
    if world.size == "long":
        expect(queue, pending=count)  # otherwise it took too long
    time.sleep(max(0.0, instant - true_time()))
    began = time.monotonic()
    queue.resume()
    with pings.stage("burst"):
        world.drain(queue, seconds=300)
    world.figures["handled"] = f"{count / (time.monotonic() - began):,.0f}/s"
    for consumer in consumers:
        consumer.terminate()
        world.finish(consumer)
    tallies = [tally.read(world.folder, consumer.pid) for consumer in consumers]
    times = [sum(each) for each in zip(*(tally.times for tally in tallies), strict=True)]
    repeated = [str(number) for number, seen in enumerate(times) if seen > 1]
    return {
        "sends": count,
        "deliveries": sum(times),
        "duplicates": sum(times) - sum(map(bool, times)),
        "lost": [str(number) for number, seen in enumerate(times) if not seen],
        "early": [str(number) for each in tallies for number in each.early],
        "unexplained": repeated,  # no process failed
    }


def bury(queue: Queue) -> None:
    """Dead-letter everything that is due, as a handler that rejects it does."""
    while messages := queue.receive(MAX_IDS, wait=1):
        queue.execute(settle.settle, [(message, Dead("as the scenario wants it")) for message in messages])


def expect(queue: Queue, **counts: int) -> None:
    """Compare the queue's counts with those given; states that are not named must be empty."""
    stats = queue.stats()
    wanted = dict.fromkeys(STATES, 0) | counts
    found = {name: getattr(stats, name) for name in wanted}
    if found != wanted:
        raise Broken(f"the counts are {found}, not {wanted}")


def slow_scripts(queue: Queue) -> dict[str, list[float]]:
    """Return, by script name, the ms of each call that took longer than SLOW_US."""
    client: Any = queue._executor.client
    names = {script(path.stem).sha: path.stem for path in (ROOT / "lua").glob("*.lua") if path.stem != "prelude"}
    slow: dict[str, list[float]] = defaultdict(list)
    for entry in client.slowlog_get(100_000):
        command, *words = entry["command"].split()
        if command in (b"EVALSHA", b"EVAL"):  # the log has the start of scripts sent in full
            slow[names.get(words[0].decode(), "sent whole")].append(entry["duration"] / 1000)
    return slow
