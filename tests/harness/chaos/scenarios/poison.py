"""Some messages kill the processes that handle them, in several ways, while others flow."""

from __future__ import annotations

import sys
from collections import Counter

import msgspec

from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.programs import poison
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

LEASE = 1.0
KINDS = [*poison.DEADLY, "memory-error"]


def run(world: World) -> Verdict:
    """Each poison message is dead after its retries, all others are handled, and the supervisor survives."""
    server = world.server()
    retries, each_kind, count = world.pick((1, 1, 300), (3, 3, 20_000))
    queue = world.queue(server.url, lease=LEASE, max_retries=retries)
    for number in range(each_kind):
        for kind in KINDS:
            world.send(queue, kind, f"{kind} {number}", delay=world.dice.uniform(0, world.pick(0.5, 20)))
    task = poison.Task(
        url=server.url, queue="work", journals=str(world.folder), lease=LEASE, max_retries=retries, processes=3
    )
    program = "tests.harness.chaos.programs.poison"
    supervisor = world.run(sys.executable, "-m", program, msgspec.json.encode(task).decode())
    options = {"max_retries": retries}
    delays = (0.0, world.pick(3.0, 60.0))
    producer = world.producer(server.url, "work", name="m", count=count, batch=100, delays=delays, options=options)
    world.finish(producer, 60)
    if not eventually(lambda: queue.stats().dead >= each_kind * len(KINDS), world.pick(60, 600)):
        raise Broken(f"not all poison is dead: {queue.stats()}; {world.log()}")
    world.drain(queue, 120)
    supervisor.terminate()
    world.finish(supervisor)
    letters = queue.dead.list(limit=1000)
    # A message that fails normally may be lost on its last attempt when another kills its process.
    reasons = {"memory-error": {"retries-exhausted", "consumer-lost"}}
    unlike = [letter for letter in letters if letter.reason not in reasons.get(letter.payload, {"consumer-lost"})]
    unlike += [letter for letter in letters if letter.attempts != retries + 1]
    if unlike or Counter(letter.payload for letter in letters) != Counter(KINDS * each_kind):
        raise Broken(f"the dead are {[(letter.id, letter.reason, letter.attempts) for letter in letters]}")
    verdict = world.verdict(queue)
    if verdict.sends != count + len(letters) or queue.stats().acked != count:
        raise Broken(f"{queue.stats().acked} of {count} innocent messages were handled; {verdict}")
    kills = [event.note for event in history.read(world.folder) if event.kind == "fault"]
    if set(kills) != poison.DEADLY.keys():
        raise Broken(f"only {sorted(set(kills))} have killed their process")
    world.figures["processes killed"] = str(len(kills))
    return verdict
