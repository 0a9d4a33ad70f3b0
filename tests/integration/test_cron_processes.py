"""Schedules that several processes run, while processes are killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from delayq import Consumer, Queue
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

PROCESSES, KILLS, LEASE = 4, 8, 1

PROGRAM = """
import sys
import redis
from delayq import Consumer, Queue

notes = redis.Redis.from_url(sys.argv[1])
queue = Queue("jobs", url=sys.argv[1], lease=1, max_retries=50, backoff=lambda attempt: 0.05)

@queue.cron("* * * * * *", missed="all")
def tick(message):
    notes.rpush("fired", f"{round(message.slot.timestamp() * 1000)} {message.attempt}")

Consumer(queue, concurrency=2).run()
"""


class Fleet:
    """Processes that consume. One of them can be killed and replaced."""

    def __init__(self, url: str, program: Path) -> None:
        self._words = [sys.executable, str(program), url]
        self._running: list[subprocess.Popen[bytes]] = []
        for _ in range(PROCESSES):
            self._start()

    def replace_one(self) -> None:
        process = self._running.pop(0)
        process.kill()
        process.wait()
        self._start()

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def _start(self) -> None:
        self._running.append(subprocess.Popen(self._words, stderr=subprocess.DEVNULL))


@pytest.fixture
def fleet(redis_server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    fleet = Fleet(redis_server.url, program)
    yield fleet
    fleet.close()


def test_each_slot_is_fired_once_while_consumers_are_killed(
    fleet: Fleet, redis_client: redis.Redis, redis_server: RedisServer
):
    def fired() -> list[list[int]]:
        return [list(map(int, row.split())) for row in redis_client.lrange("fired", 0, -1)]

    def slots_fired() -> int:
        return len({slot for slot, _ in fired()})

    for number in range(KILLS):
        seen = slots_fired()
        assert eventually(lambda seen=seen: slots_fired() > seen), f"nothing came after {number} kills"  # type: ignore[misc]
        fleet.replace_one()
    fleet.close()
    with Queue("jobs", url=redis_server.url, lease=LEASE) as queue:
        queue.schedules.pause("tick")
        queue.cron("* * * * * *", name="tick", missed="all")(
            lambda message: redis_client.rpush("fired", f"{round(message.slot.timestamp() * 1000)} {message.attempt}")
        )
        assert eventually(lambda: Consumer(queue).drain() + queue.stats().unack + queue.stats().retry == 0)
        stats = queue.stats()
        first = [slot for slot, attempt in fired() if attempt == 1]
        slots = sorted({slot for slot, _ in fired()})
        assert len(first) == len(set(first)), "a slot was sent twice"
        assert slots == list(range(slots[0], slots[-1] + 1, 1000)), "a slot was left out"
        assert (stats.acked, stats.acked + stats.cancelled) == (len(slots), stats.sent)
        assert (stats.dead, stats.missing) == (0, 0)
        assert len(slots) >= KILLS
