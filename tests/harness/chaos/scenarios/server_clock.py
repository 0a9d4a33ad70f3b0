"""The server's clock is stepped back and forward repeatedly while messages flow and consumers are killed.

In the long form, libfaketime gives a redis-server a wrong clock. Without it, and in the short form, all clients pass
the wrong time to the scripts instead.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from delayq import Queue
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.clocks import WrongClock
from tests.harness.chaos.history import Event
from tests.harness.chaos.programs import consume, produce
from tests.harness.chaos.world import STOP_SECONDS, Broken, World
from tests.harness.servers import RedisServer, server_binaries
from tests.harness.waiting import eventually

LEASE = 2.0
NOTICED_SECONDS = 1.0  # consumers check at least every second
GRACE_SECONDS = 6.0  # after each step, in which ended leases are left to their holders
MOST_DELAY = 0.5
RATE = 200.0
LONE = 20  # messages, one after the other, because this process may pause until one is due
STALE = 0.5  # seconds: for so long, a busy process may hold a time before it passes it to a script
SLOW = 1.0  # a consumer this slow always holds messages
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
# With Debian's 7.0, libfaketime recurses endlessly: the allocator, a shared library there, asks for the time itself.
FAKEABLE = ("8.2", "6.2")
FAKED = """#!/bin/sh
exec env LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={offset} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 \\
  {binary} "$@"
"""


def run(world: World) -> Verdict:
    """Nothing is lost, and nothing is stuck for longer than the step plus a second."""
    step, rounds = world.pick((1.5, 1), (5.0, 3))
    clock = WrongClock(world.folder / "offset")
    binary = fake_server(clock) if world.size == "long" else None
    server = RedisServer(binary, appendonly=True) if binary else world.server()
    world.figures["by"] = "libfaketime" if binary else "now"
    with contextlib.closing(server):
        queue = world.queue(server.url, lease=world.lease(LEASE), clock=str if binary else clock.now_ms)
        play(
            world,
            queue,
            server.url,
            clock,
            [-step, step, *[0.0, -step, step] * (rounds - 1)],
            is_wrapped=binary is None,
        )
        verdict = world.verdict(queue)
    events = history.read(world.folder)
    verdict = replace(verdict, early=early(events, verdict.early, clock))
    waited = longest_wait(events, clock)
    world.figures["longest wait past due"] = f"{waited:.2f} s"
    if waited < step / 2:
        raise Broken(f"a step of {step} s has held nothing up: the clock that was stepped is not the server's")
    if world.size == "long" and waited > step + NOTICED_SECONDS:
        raise Broken(f"a message was stuck for {waited:.2f} s after it was due; the clock was set back by {step} s")
    if world.size == "long" and verdict.worst_recovery > LEASE + step + NOTICED_SECONDS + GRACE_SECONDS:
        raise Broken(f"a message was handled {verdict.worst_recovery:.2f} s after its consumer's death")
    return verdict


def play(world: World, queue: Queue, url: str, clock: WrongClock, offsets: list[float], *, is_wrapped: bool) -> None:
    """Let messages flow while the clock is stepped, until all are handled."""

    def start(name: str, task: msgspec.Struct) -> subprocess.Popen[bytes]:
        clocked = ["clocked", "server", str(clock.path), name] if is_wrapped else [name]
        return world.run(
            sys.executable, "-m", f"tests.harness.chaos.programs.{clocked[0]}", *clocked[1:], encoded(task)
        )

    common: dict[str, Any] = {"url": url, "queue": "work", "journals": str(world.folder)}
    # No message sees more than one step back. In the long form, each grace ends before the next step prolongs it.
    phase = max(offsets) + 2 * MOST_DELAY + world.pick(0.0, GRACE_SECONDS)
    count = int(RATE * phase * (len(offsets) + 0.5))
    producer = start("produce", produce.Task(**common, name="m", count=count, rate=RATE, delays=(0.0, MOST_DELAY)))
    works = (0.002, 0.002, SLOW)
    consumers = [
        start("consume", consume.Task(**common, lease=world.lease(LEASE), work=work, fail_every=20)) for work in works
    ]
    slow = world.folder / f"consumer-{consumers[-1].pid}.jsonl"
    if not eventually(lambda: slow.exists() and slow.stat().st_size > 0):
        raise Broken(f"a consumer has nothing to do: {world.log()}")
    world.kill(consumers.pop())
    for offset in offsets:
        with world.trouble(f"clock {offset:+} s"):
            clock.set(offset)
        time.sleep(phase)
    world.finish(producer, STOP_SECONDS + count / RATE)
    world.drain(queue)
    lose_watcher(world, queue, clock, consumers)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)


def lose_watcher(world: World, queue: Queue, clock: WrongClock, consumers: list[subprocess.Popen[bytes]]) -> None:
    """In an idle fleet, kill the consumer that keeps the timer for all, just when the clock is set back."""
    client: Any = queue._executor.client
    timer = queue._context.shards[0].keys.timer
    watched: list[bytes] = []

    def is_watched(id: str) -> bool:
        info, promise = queue.get(id), client.get(timer) or b""
        if info is None or info.due_at is None:  # handled, or about to be
            return True
        if promise.startswith(f"{info.due_at.timestamp() * 1000:.0f} ".encode()):
            watched.append(promise)
        return bool(watched)

    for number in range(LONE):
        world.send(queue, 0, f"lone-{number}", delay=0.9)  # within the second that consumers look ahead
        if not eventually(partial(is_watched, f"lone-{number}")):
            raise Broken(f"nobody watches the time: {client.get(timer)}")
        if watched:
            break
    else:
        raise Broken(f"nobody has watched the time for any of {LONE} messages")
    pid = int(watched[0].split(b"-")[-2])
    watcher = next(consumer for consumer in consumers if consumer.pid == pid)
    consumers.remove(watcher)
    world.kill(watcher)
    with world.trouble("clock +0 s"):
        clock.set(0.0)


def early(events: list[Event], suspects: list[str], clock: WrongClock) -> list[str]:
    """Return the messages that were delivered before the server's clock had ever shown their due time.

    A time that was shown shortly before the send counts too, because a script may have got it only after the send.
    """
    attempted = {event.id: event.at for event in events if event.kind == "attempted"}
    due = {event.id: event.ms for event in events if event.kind == "sent"}
    delivered = [event for event in events if event.kind == "delivered" and event.id in set(suspects)]
    return sorted({each.id for each in delivered if clock.shown(attempted[each.id] - STALE, each.at)[1] < due[each.id]})


def longest_wait(events: list[Event], clock: WrongClock) -> float:
    """Return the seconds that due messages waited for their first attempt, or for the next one after a failure.

    The due time is the one without the clock steps after the send. Attempts after a lost one are not counted, because
    they wait for the end of a lease.
    """
    attempted: dict[str, float] = {}
    due: dict[tuple[str, int], float] = {}  # by message and attempt, monotonic
    worst = 0.0
    for event in events:
        if event.kind == "attempted":
            attempted[event.id] = event.at
        elif event.kind == "sent":
            shown, _ = clock.shown(attempted[event.id], event.at)
            due[event.id, 1] = event.at + (event.ms - shown) / 1000
        elif event.kind == "failed":
            due[event.id, event.attempt + 1] = event.at + event.ms / 1000
        elif event.kind == "delivered":
            worst = max(worst, event.at - due.get((event.id, event.attempt), event.at))
    return worst


def fake_server(clock: WrongClock) -> Path | None:
    """Make a program beside the clock's file that runs a redis-server with that clock; None without libfaketime."""
    found = itertools.chain.from_iterable(Path(folder).glob("**/libfaketime.so.1") for folder in LIBRARIES)
    library = next(found, None)
    binary = next((server_binaries()[version] for version in FAKEABLE if version in server_binaries()), None)
    if library is None or binary is None:
        return None
    program = clock.path.with_name("faked-redis-server")
    program.write_text(FAKED.format(library=library, offset=clock.path, binary=binary))
    program.chmod(0o755)
    return program


def encoded(task: msgspec.Struct) -> str:
    return msgspec.json.encode(task).decode()
