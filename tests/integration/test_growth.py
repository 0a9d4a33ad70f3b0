"""The longest command of each script and each public method does not grow with the data, unless its header says so."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import pytest

from delayq import Outgoing, Queue, Topic
from delayq.dead_letters import DeadLetters
from delayq.model.placement import STATES, State
from delayq.protocol.command import Command
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.queue_keys import QueueKeys
from delayq.protocol.topic_commands import TopicCommands
from delayq.protocol.topic_keys import TopicKeys
from delayq.schedules import Schedules
from delayq.topic_group import Group
from tests.harness.lua.every import CALLS as QUEUE_CALLS
from tests.harness.lua.every import STATE
from tests.harness.lua.raw import NOW
from tests.harness.lua_source import LuaSource
from tests.harness.servers import RedisServer
from tests.harness.tree import LUA
from tests.topics.test_scripts import CALLS as TOPIC_CALLS

pytestmark = pytest.mark.full

FEW, MANY = 5000, 50_000
HOUR_MS = 3_600_000
GROWTH, ROOM_US = 2, 1000  # walking over MANY entries takes milliseconds more; a busy machine, less
ATTEMPTS = 10  # each on new data: on a busy machine, a command that is interrupted takes some milliseconds more
DELIVERED = ("unack", "retry", "dead")
GROWS = re.compile(r"O\((unacked|consumers|groups)\b|O\(samples\)")  # in a Cost: grows with what this names
LETTER: dict[Any, Any] = {b"consumer": "c", b"deliveries": 1, b"reason": "rejected", b"errors": ""}
QUEUE, TOPIC = QueueKeys("delayq", "jobs"), TopicKeys.of_topic("delayq", "news")


class Face(NamedTuple):
    """What a program holds: a queue and a topic with n of everything."""

    queue: Queue
    topic: Topic
    group: Group


def script_calls() -> dict[str, Command[Any]]:
    scripts, topics = QueueCommands(QUEUE), TopicCommands(TOPIC)
    calls = {name: call(scripts) for name, call in QUEUE_CALLS.items()}
    calls |= {f"topics/{name}": call(topics) for name, call in TOPIC_CALLS.items() if name != "destroy"}
    calls["topics/publish"] = topics.publish([(f"{2 * MANY}-0", b"{}")], MANY, exact=True)
    for idle in (0, HOUR_MS):
        for consumer in ("", "c"):
            calls[f"topics/unacked {idle} {consumer}"] = topics.unacked("g", consumer, idle, "", 100)
    calls["topics/reclaim idle"] = topics.reclaim("g", "d", HOUR_MS, "", 100, 1)
    calls["topics/destroy"] = topics.destroy("g")  # the last one
    return calls


METHODS: dict[str, Callable[[Face], object]] = {
    "Queue.stats": lambda face: face.queue.stats(),
    "Queue.usage": lambda face: face.queue.usage(),
    "Queue.consumers": lambda face: face.queue.consumers(),
    "Queue.peek": lambda face: face.queue.peek("retry", 100),
    "Queue.page": lambda face: face.queue.page("unack"),
    "Queue.upcoming": lambda face: face.queue.upcoming(),
    "Queue.sample": lambda face: face.queue.sample(),
    "Queue.samples": lambda face: face.queue.samples(),
    "Queue.get": lambda face: face.queue.get("pending-7"),
    "Queue.why": lambda face: face.queue.why("retry-7"),
    "Queue.history": lambda face: face.queue.history("pending-7"),
    "Queue.configuration": lambda face: face.queue.configuration(),
    "Queue.configure": lambda face: face.queue.configure(max_retries=7),
    "Queue.send": lambda face: face.queue.send("x"),
    "Queue.send_many": lambda face: face.queue.send_many([Outgoing(n) for n in range(500)]),
    "Queue.send_group": lambda face: face.queue.send_group([Outgoing(n) for n in range(100)], Outgoing("then"), id="g"),
    "Queue.group": lambda face: face.queue.group("g"),
    "Queue.cancel_group": lambda face: face.queue.cancel_group("g"),
    "Queue.reschedule": lambda face: face.queue.reschedule("retry-7", delay=9),
    "Queue.now": lambda face: face.queue.now("retry-8"),
    "Queue.cancel": lambda face: face.queue.cancel("pending-8"),
    "Queue.pause": lambda face: face.queue.pause(),
    "Queue.resume": lambda face: face.queue.resume(),
    "Queue.receive": lambda face: face.queue.receive(32),
    "Schedules.list": lambda face: face.queue.schedules.list(),
    "Schedules.get": lambda face: face.queue.schedules.get("s7"),
    "Schedules.next": lambda face: face.queue.schedules.next(5),
    "Schedules.next of one": lambda face: face.queue.schedules.next(5, "s7"),
    "Schedules.add": lambda face: face.queue.schedules.add("new", "@daily"),
    "Schedules.pause": lambda face: face.queue.schedules.pause("s7"),
    "Schedules.resume": lambda face: face.queue.schedules.resume("s7"),
    "Schedules.run_now": lambda face: face.queue.schedules.run_now("s7"),
    "Schedules.remove": lambda face: face.queue.schedules.remove("s7"),
    "DeadLetters.list": lambda face: face.queue.dead.list(),
    "DeadLetters.causes": lambda face: face.queue.dead.causes(),
    "DeadLetters.bury": lambda face: face.queue.dead.bury("retry-9"),
    "DeadLetters.edit": lambda face: face.queue.dead.edit("dead-7", "x"),
    "DeadLetters.redrive": lambda face: face.queue.dead.redrive(error="nothing like it"),
    "Queue.result": lambda face: face.queue.result("x"),
    "DeadLetters.requeue": lambda face: face.queue.dead.requeue(["dead-8"]),
    "DeadLetters.purge": lambda face: face.queue.dead.purge(older_than=60),
    "Queue.collect_garbage": lambda face: face.queue.collect_garbage(),
    "Queue.purge": lambda face: face.queue.purge("pending"),
    "Topic.group_readings": lambda face: face.topic.group_readings(),
    "Topic.groups": lambda face: face.topic.groups(),
    "Topic.length": lambda face: face.topic.length(),
    "Topic.range": lambda face: face.topic.range(),
    "Topic.why": lambda face: face.topic.why("9-0"),
    "Topic.publish": lambda face: face.topic.publish("x"),
    "Topic.publish_many": lambda face: face.topic.publish_many([]),
    "Topic.cancel": lambda face: face.topic.cancel("x"),
    "Topic.delete": lambda face: face.topic.delete("9-0"),
    "Topic.group": lambda face: face.topic.group("another"),
    "Group.info": lambda face: face.group.info(),
    "Group.lag": lambda face: face.group.lag(),
    "Group.consumers": lambda face: face.group.consumers(),
    "Group.unacked": lambda face: face.group.unacked(),
    "Group.unacked, idle": lambda face: face.group.unacked(idle=3600),
    "Group.unacked of one": lambda face: face.group.unacked("c", idle=3600),
    "Group.own_unacked": lambda face: face.group.own_unacked("c"),
    "Group.poll": lambda face: face.group.poll("c"),
    "Group.ack": lambda face: face.group.ack("10-0"),
    "Group.dead": lambda face: face.group.dead(),
    "Group.dead_page": lambda face: face.group.dead_page(),
    "Group.dead_length": lambda face: face.group.dead_length(),
    "Group.fetch_not_acked": lambda face: face.group.fetch_not_acked("d"),
    "Group.clear_ghosts": lambda face: face.group.clear_ghosts(),
    "Group.set_position": lambda face: face.group.set_position("$"),
    "Group.remove_consumer": lambda face: face.group.remove_consumer("c", to="d"),
    "Group.destroy": lambda face: face.group.destroy(),
    "Topic.shrink_by_last_size": lambda face: face.topic.shrink_by_last_size(),
    "Topic.trim_acked": lambda face: face.topic.trim_acked(),
    "Topic.trim": lambda face: face.topic.trim(max_length=0, approximate=False),
}
ELSEWHERE = {  # without a command of their own, or the same commands as one above
    *(
        "Queue." + name
        for name in ("ack", "extend", "report", "settle", "execute", "close", "wish", "handler", "batch_handler")
    ),
    *("Queue." + name for name in ("task", "cron", "send_delay_msg", "send_schedule_msg")),
    *("Topic." + name for name in ("close", "execute", "tail")),
    *("Group." + name for name in ("bury", "get_dead", "requeue_dead", "delete_dead")),
}


def test_every_public_method_is_measured():
    classes = (Queue, Schedules, DeadLetters, Topic, Group)
    public = {
        f"{each.__name__}.{name}"
        for each in classes
        for name, _ in inspect.getmembers(each, inspect.isfunction)
        if not name.startswith("_")
    }
    measured = {re.split(" of |,", name)[0] for name in METHODS}
    assert public == measured | ELSEWHERE


def test_no_script_takes_longer_with_more_data_than_its_cost_says(own_server: RedisServer):
    calls = script_calls()
    growing = {name for name in calls if GROWS.search(cost_of(name))}

    def measured(client: Any, name: str) -> int:
        put_back(client)
        return longest(client, lambda: client.execute_command(*calls[name].words(whole=True)))

    assert too_slow(own_server, [name for name in calls if name not in growing], measured) == {}


def test_no_command_of_a_public_method_takes_longer_with_more_data(own_server: RedisServer):
    def measured(client: Any, name: str) -> int:
        with Queue("jobs", redis=client) as queue, Topic("news", redis=client) as topic:
            face = Face(queue, topic, topic.group("g", create=False))
            return longest(client, lambda: METHODS[name](face))

    assert too_slow(own_server, list(METHODS), measured) == {}


def cost_of(name: str) -> str:
    fields = LuaSource(LUA / f"{name.split(maxsplit=1)[0]}.lua").fields
    return next(field.text for field in fields if field.name == "Cost")


def too_slow(server: RedisServer, names: list[str], measured: Callable[[Any, str], int]) -> dict[str, list[int]]:
    """Return the names that took longer with more data, with the shortest times of all attempts, us."""
    slow = {name: [sys.maxsize, sys.maxsize] for name in names}
    for _ in range(ATTEMPTS):
        for at, size in enumerate((FEW, MANY)):
            with server.client() as client:
                fill(client, size)
                for name, times in slow.items():
                    times[at] = min(times[at], measured(client, name))
        slow = {name: [few, many] for name, (few, many) in slow.items() if many > GROWTH * few + ROOM_US}
        if not slow:
            break
    return slow


def longest(client: Any, act: Callable[[], object]) -> int:
    """Return how long the longest command took on the server, us; of several alike, their median."""
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()
    act()
    client.config_set("slowlog-log-slower-than", -1)
    times: dict[bytes, list[int]] = {}
    for entry in client.slowlog_get(-1):
        if not entry["command"].startswith((b"SLOWLOG", b"CONFIG")):
            times.setdefault(b" ".join(entry["command"].split()[:2]), []).append(entry["duration"])
    return int(max(median(each) for each in times.values()))


def put_back(client: Any) -> None:
    """Store what the calls of the scripts need, which an earlier one may have moved."""
    later = int(client.time()[0]) * 1000 - NOW
    with client.pipeline(transaction=False) as pipe:
        for structure, contents in STATE.items():
            key = getattr(QUEUE, structure, "")
            if structure == "messages":
                pipe.mset({QUEUE.message(name): envelope for name, envelope in contents.items()})
            elif structure in (*STATES, "armed"):
                pipe.zadd(key, {name: score + later for name, score in contents.items()})
            elif isinstance(contents, set):
                pipe.sadd(key, *contents)
            elif structure != "stats":
                pipe.hset(key, mapping=contents)
        pipe.execute()


def fill(client: Any, size: int) -> None:
    """Store `size` messages in each state, schedules, consumers, and records that a group holds or has buried."""
    client.flushall()
    client.config_set("appendonly", "no")  # it is rewritten as it grows: after a fork, each command copies memory
    client.config_set("slowlog-log-slower-than", -1)
    client.config_set("slowlog-max-len", 10 * MANY)
    with Queue("jobs", redis=client) as queue, Topic("news", redis=client) as topic:
        queue.send("x", id="template")
        queue.schedules.add("nightly", "0 3 * * *", {"a": 1})
        topic.publish("x")
    now = int(client.time()[0]) * 1000
    envelope, record = client.get(QUEUE.message("template")), client.hget(QUEUE.schedules, "nightly")
    fields = client.xrange(TOPIC.stream)[0][1]
    client.delete(TOPIC.stream)
    later = now + HOUR_MS
    due: dict[State, int] = {"pending": later, "ready": now - MANY, "unack": later, "retry": later, "dead": now}
    with client.pipeline(transaction=False) as pipe:
        for start in range(0, size, 1000):
            part = range(start, start + 1000)
            for state, first in due.items():
                names = [f"{state}-{n}" for n in part]
                pipe.zadd(QUEUE.state(state), dict(zip(names, range(first + start, first + start + 1000), strict=True)))
                pipe.mset(dict.fromkeys(map(QUEUE.message, names), envelope))
            pipe.hset(QUEUE.attempts, mapping={f"{state}-{n}": "1.0.0.0" for state in DELIVERED for n in part})
            pipe.hset(QUEUE.schedules, mapping={f"s{n}": record for n in part})
            pipe.zadd(QUEUE.armed, {f"s{n}": now + HOUR_MS + n for n in part})
            pipe.hset(QUEUE.reports, mapping={f"c{n}": "{}" for n in part})
            pipe.zadd(QUEUE.consumers, {f"c{n}": now - 40_000 - n % 20_000 for n in part})  # silent for over 30 s
            for n in part:
                pipe.xadd(TOPIC.stream, fields, id=f"{n + 1}-0")
                pipe.xadd(TOPIC.buried("g"), {b"of": f"{n + 1}-0"} | LETTER | fields, id=f"{n + 1}-0")
            pipe.execute()
    client.xgroup_create(TOPIC.stream, "g", "0")
    client.xreadgroup("g", "c", {TOPIC.stream: ">"}, count=size)
