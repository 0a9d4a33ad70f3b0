"""Three groups read a topic while it is trimmed, and their consumers are killed and replaced."""

from __future__ import annotations

import subprocess
import time
from collections import Counter

from delayq import NewRecord, Topic
from delayq.topic_group import Group
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.programs import fan
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

GROUPS = ("billing", "mail", "search")
ACK_TIMEOUT = 5.0  # three renewals, on a busy machine


def run(world: World) -> Verdict:
    """Every group handles every record, also those of killed consumers, and none is trimmed before all acked it."""
    server = world.server()
    count, members, rate, pause = world.pick((3_000, 2, 1_000, 1.0), (200_000, 4, 4_000, 2.0))
    ack_timeout = world.lease(ACK_TIMEOUT)
    task = {"ack_timeout": ack_timeout, "fail_every": 500, "work": world.pick(0.001, 0.0)}

    def hire(group: str) -> subprocess.Popen[bytes]:
        return world.fan(server.url, "orders", group=group, **task)

    with Topic("orders", url=server.url) as topic:
        groups = {name: topic.group(name, "0") for name in GROUPS}
        consumers = [(name, hire(name)) for name in GROUPS for _ in range(members)]
        if not eventually(lambda: all(fan.path_of(world.folder, name, each.pid).exists() for name, each in consumers)):
            raise Broken(f"a consumer did not start; {world.log()}")
        began = struck = time.monotonic()
        published = trimmed = kills = in_flight = 0
        while published < count or not is_done(groups):
            trimmed += topic.trim_acked().dropped
            if published < min(count, rate * (time.monotonic() - began)):
                published += publish(topic, published, count)
            else:
                time.sleep(0.02)
            if time.monotonic() > struck + pause and kills < world.pick(3, 1_000):
                struck = time.monotonic()
                name, victim = consumers.pop(world.dice.randrange(len(consumers)))
                world.kill(victim)
                in_flight += held_by(groups[name], victim.pid)
                consumers.append((name, hire(name)))
                kills += 1
            if time.monotonic() > began + world.pick(400, 900):
                raise Broken(f"not done: {topic.groups()}; {world.log()}")
        seconds = time.monotonic() - began
        trimmed += topic.trim_acked().dropped
        ghosts = sum(group.clear_ghosts() for group in groups.values())
        dead = sum(len(group.dead()) for group in groups.values())
        left = topic.length()
    end(world, consumers)
    world.figures |= {"kills": str(kills), "in flight at them": f"{in_flight:,}", "trimmed": f"{trimmed:,}"}
    world.figures |= {"handled": f"{count * len(GROUPS) / seconds:,.0f}/s"}
    if (trimmed, left, ghosts, dead) != (count, 0, 0, 0):
        raise Broken(f"{trimmed} of {count} trimmed, {left} left, {ghosts} ghosts, {dead} dead; {world.figures}")
    if world.size == "long" and not in_flight:
        raise Broken(f"{kills} kills have hit nothing")
    verdict = judged(world, count)
    if verdict.duplicates > in_flight:
        raise Broken(f"{verdict.duplicates} duplicates, though the dead held {in_flight}; {world.figures}")
    return verdict


def publish(topic: Topic, first: int, count: int) -> int:
    """Publish the next records; return their number."""
    return len(topic.publish_many([NewRecord(number) for number in range(first, min(count, first + 500))]))


def end(world: World, consumers: list[tuple[str, subprocess.Popen[bytes]]]) -> None:
    """Ask all consumers to stop cleanly."""
    for name, consumer in consumers:
        if not eventually(fan.path_of(world.folder, name, consumer.pid).exists):
            raise Broken(f"a consumer did not start; {world.log()}")
        consumer.terminate()
        world.finish(consumer)


def is_done(groups: dict[str, Group]) -> bool:
    """Whether nothing is left to handle."""
    found = [group.info() for group in groups.values()]
    return not any(each.lag or each.unacked for each in found)


def held_by(group: Group, pid: int) -> int:
    """Return how many records a dead process holds, and under which name."""
    return sum(each.unacked for each in group.consumers() if f"-{pid}-" in each.name)


def judged(world: World, count: int) -> Verdict:
    """Read what the processes have written."""
    lost: list[str] = []
    unexpected: list[str] = []
    deliveries = duplicates = 0
    for name in GROUPS:
        handled: Counter[int] = Counter()
        for path in world.folder.glob(f"handled-{name}-*"):
            handled.update(map(int, path.read_bytes().split()))
        lost += [f"{name}: {number}" for number in range(count) if number not in handled]
        unexpected += [f"{name}: {number}" for number in handled if not 0 <= number < count]
        deliveries += handled.total()
        duplicates += handled.total() - len(handled)
    return Verdict(count, deliveries, duplicates, 0, 0.0, lost=lost, unexpected=unexpected)
