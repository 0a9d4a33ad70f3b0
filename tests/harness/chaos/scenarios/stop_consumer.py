"""Consumers are stopped for twice their lease, and then settle messages that others have taken over meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from typing import Any

import msgspec

from delayq import Message, Queue
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.contents import contents
from tests.harness.chaos.programs import settle_late
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

CALLS = [*settle_late.CALLS, "acks"]
FATES = ["held", "acked", "released", "retried", "dead", "cancelled", "sent anew"]
ENDS: dict[str, history.Kind] = {"held": "finished", "acked": "finished", "released": "released"}
LONG = 3600.0  # seconds: nothing with this delay falls due by itself
CONCURRENCY = 4


def run(world: World) -> Verdict:
    """Compare what Redis holds before and after each late call: nothing may have changed."""
    lease = world.pick(3.0, 5.0)
    url = world.server().url
    queue = world.queue(url, lease=lease)
    pulling(world, queue, url, lease)
    pushing(world, queue, url, lease)
    return world.verdict(queue, lease=lease)


def pulling(world: World, queue: Queue, url: str, lease: float) -> None:
    """Let a program settle each of its messages in each way, after each possible fate."""
    ids = {f"{call}, {fate}": (call, fate) for call in CALLS for fate in FATES}
    for id, (call, _) in ids.items():
        world.send(queue, call, id)
    go = world.folder / "go"
    task = settle_late.Task(url=url, queue="work", journals=str(world.folder), lease=lease, count=len(ids), go=str(go))
    program = "tests.harness.chaos.programs.settle_late"
    late = world.run(sys.executable, "-m", program, msgspec.json.encode(task).decode())
    await_events(world, late, "settled", 1)
    with world.stopped(late):
        time.sleep(2 * lease)
        again = taken(world, queue, len(ids))
        for message in again:
            meet(world, queue, message, ids[message.id][1])
        before = contents(queue)
        go.touch()
    world.finish(late)
    compare(before, contents(queue), "a late call")
    said = Counter(event.note for event in events_of(world, late, "settled") if event.id)
    if said != {"stale": len(ids)}:
        raise Broken(f"{len(ids)} late calls were told {dict(said)}")
    world.figures["late calls refused"] = str(said["stale"])
    for message in again:
        if ids[message.id][1] == "held":
            message.ack()
    for id, (_, fate) in ids.items():
        if fate == "sent anew":
            cancel(world, queue, id)
        elif fate == "retried":
            queue.reschedule(id, delay=0)
    for message in taken(world, queue, 2 * len(CALLS)):  # the released and the retried ones
        world.journal.note("finished", message.id, attempt=message.attempt)
        message.ack()


def meet(world: World, queue: Queue, message: Message, fate: str) -> None:
    """Let a message that was taken over meet its fate."""
    world.journal.note(ENDS.get(fate, "failed"), message.id, attempt=message.attempt)
    if fate == "acked":
        message.ack()
    elif fate == "released":
        message.release()
    elif fate == "dead":
        message.reject("as the scenario wants it")
    elif fate != "held":
        message.nack(LONG)
    if fate in {"cancelled", "sent anew"}:
        cancel(world, queue, message.id)
    if fate == "sent anew":
        world.send(queue, message.payload, message.id, delay=LONG)


def cancel(world: World, queue: Queue, id: str) -> None:
    if (said := queue.cancel(id)) != "cancelled":
        raise Broken(f"{id} was not cancelled but {said}")
    world.journal.note("cancelled", id)


def pushing(world: World, queue: Queue, url: str, lease: float) -> None:
    """Let a consumer's handlers, some of them failing, run on after others have handled its messages."""
    for number in range(3 * CONCURRENCY):
        world.send(queue, number, f"push {number}")
    slow = world.consumer(url, "work", lease=lease, concurrency=CONCURRENCY, work=6 * lease, fail_every=2)
    await_events(world, slow, "delivered", CONCURRENCY)
    with world.stopped(slow):
        time.sleep(2 * lease)
        quick = world.consumer(url, "work", lease=lease)
        world.drain(queue)
        world.stop(quick)
        before = contents(queue)
    said = ["lease lost", "outcome refused"]  # the late heartbeat, and the late acks and nacks
    log = world.folder / "log"
    if not eventually(lambda: [log.read_text().count(line) for line in said] == [CONCURRENCY] * 2, 30):
        raise Broken(f"not each late outcome was refused: {world.log()}")
    world.stop(slow)
    compare(before, contents(queue), "a late outcome")
    world.figures["late outcomes refused"] = str(CONCURRENCY)


def taken(world: World, queue: Queue, count: int) -> list[Message]:
    """Receive `count` messages with a long lease."""
    found: list[Message] = []
    while len(found) < count:
        messages = queue.receive(count, wait=30, lease=LONG)
        if not messages:
            raise Broken(f"{len(found)} of {count} messages came")
        for message in messages:
            world.journal.delivered(message)
        found += messages
    return found


def events_of(world: World, process: subprocess.Popen[bytes], kind: str) -> list[history.Event]:
    return [event for event in history.read(world.folder) if (event.pid, event.kind) == (process.pid, kind)]


def await_events(world: World, process: subprocess.Popen[bytes], kind: str, count: int) -> None:
    if not eventually(lambda: len(events_of(world, process, kind)) >= count):
        raise Broken(f"a process has not come so far: {process.args!r}; {world.log()}")


def compare(before: dict[bytes, Any], after: dict[bytes, Any], what: str) -> None:
    changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    if changed:
        difference = "; ".join(f"{key!r}: {before.get(key)!r} -> {after.get(key)!r}" for key in sorted(changed))
        raise Broken(f"{what} has changed what Redis holds: {difference}")
