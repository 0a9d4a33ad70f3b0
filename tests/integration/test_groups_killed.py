"""Groups whose consumers are killed again and again: each `then` runs after all members, and no group is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from delayq import Outgoing, Queue
from tests.harness.servers import RedisServer

PROGRAM = """
import os, signal, sys, time
import redis
from delayq import Consumer, Queue

notes = redis.Redis.from_url(sys.argv[1])
queue = Queue("teams", url=sys.argv[1], lease=1, max_retries=1000)

def handle(message):
    if notes.incr("runs") % int(sys.argv[2]) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if message.group is None:
        time.sleep(0.002)
        notes.sadd(f"ran:{message.payload}", message.id)
    else:
        notes.rpush("ended", f"{message.group} {message.attempt} {notes.scard('ran:' + message.payload)}")

Consumer(queue, handle, concurrency=4).run()
"""

GROUPS = int(os.environ.get("GROUPS_OF_A_KILL", "20"))  # by hand: 1000 of 100
MEMBERS = int(os.environ.get("MEMBERS_OF_A_KILL", "10"))
RUNS_TO_A_KILL = int(os.environ.get("RUNS_TO_A_KILL", "50"))  # of all processes together
SECONDS = 3000


def end_of(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.full
@pytest.mark.timeout(SECONDS)
def test_each_group_ends_once_although_its_consumers_are_killed_often(own_server: RedisServer, tmp_path: Path):
    program = tmp_path / "consumer.py"
    program.write_text(PROGRAM)
    kills, running = 0, list[subprocess.Popen[bytes]]()
    with Queue("teams", url=own_server.url, max_retries=1000) as queue, own_server.client() as notes:
        names = [
            queue.send_group(
                [Outgoing(f"team{number}") for _ in range(MEMBERS)], Outgoing(f"team{number}"), id=f"g{number}"
            ).id
            for number in range(GROUPS)
        ]
        try:
            end = time.monotonic() + SECONDS
            while queue.stats().inside and time.monotonic() < end:
                while len(running) < 3:
                    running.append(
                        subprocess.Popen([sys.executable, str(program), own_server.url, str(RUNS_TO_A_KILL)])
                    )
                time.sleep(0.05)
                killed = [each for each in running if each.poll() is not None]
                assert {each.returncode for each in killed} <= {-signal.SIGKILL}
                kills += len(killed)
                running = [each for each in running if each not in killed]
        finally:
            for each in running:
                end_of(each)
        ended = [line.decode().split() for line in notes.lrange("ended", 0, -1)]
        stats = queue.stats()
        states = Counter(group.state for name in names if (group := queue.group(name)))
    total = GROUPS * (MEMBERS + 1)
    assert (stats.inside, stats.held, stats.missing, stats.dead, stats.acked) == (0, 0, 0, 0, total)
    assert states == {"done": GROUPS}
    firsts = Counter(name for name, attempt, _ in ended if attempt == "1")
    assert set(firsts.values()) <= {1}, "a message that waited for its group was made due twice"
    assert {name for name, _, _ in ended} == set(names)
    assert {int(ran) for _, _, ran in ended} == {MEMBERS}, "one ran before all members had"
    assert kills >= total // RUNS_TO_A_KILL
    sys.stdout.write(f"{GROUPS} groups of {MEMBERS}: {kills} kills, {stats.delivered - total} repeated deliveries\n")
