"""A fleet of idle consumers where one watches for all: what it costs, and that it finds messages without a ring."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq import Outgoing, Queue
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

PROGRAM = """
import os, signal, sys
from delayq import Consumer, Queue

url, shards, *names = sys.argv[1:]
pids = []
for name in names:  # forked, because starting Python takes far longer than what is tested here
    pids.append(os.fork())
    if pids[-1] == 0:
        queue = Queue("jobs", url=url, lease=2, shards=int(shards))
        Consumer(queue, lambda message: None, concurrency=2, name=name).run()
        sys.exit()
print(*pids, flush=True)
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
for pid in pids:
    os.waitpid(pid, 0)  # only now can another process get its id
"""

SIZE = 5
KEY = "delayq:{jobs}:"


class Fleet:
    """Consumers, each a process; the ids of the processes are in `pids`, by name."""

    def __init__(self, server: RedisServer, program: Path, shards: int) -> None:
        self.queue = Queue("jobs", url=server.url, shards=shards)
        self.redis: Any = server.client(decode_responses=True)
        self._command = [sys.executable, str(program), server.url, str(shards)]
        self._shards = shards
        self.begun = time.monotonic()
        self._log = program.with_suffix(".log")
        self._parents: list[subprocess.Popen[bytes]] = []
        self.pids: dict[str, int] = {}

    def start(self, size: int = SIZE) -> None:
        """Start `size` more, and wait until all listen."""
        names = [f"c{len(self.pids) + number}" for number in range(size)]
        with self._log.open("ab") as log:
            pipe = subprocess.PIPE
            command = [*self._command, *names]
            # In a session of its own, Ctrl-C does not end it before it has killed the consumers.
            parent = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True)
        self._parents.append(parent)
        assert parent.stdout is not None
        self.pids |= zip(names, map(int, parent.stdout.readline().split()), strict=True)
        assert eventually(lambda: self.listening() >= size * self._shards)

    def listening(self) -> int:
        """How many consumers listen to the bell."""
        return sum(each["cmd"] == "blpop" for each in self.redis.client_list())

    def watcher(self) -> str:
        """The name of the consumer that watches, or '' if none does."""
        return str(self.redis.get(f"{KEY}timer") or "").partition(" ")[2]

    def calls(self, command: str) -> int:
        return int(self.redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def said(self) -> str:
        """What the consumers have logged."""
        return self._log.read_text()

    def end(self, name: str, how: signal.Signals) -> None:
        os.kill(self.pids[name], how)

    def close(self) -> None:
        for parent in self._parents:
            parent.communicate()  # ends its input, so that it kills its consumers
        self.queue.close()
        self.redis.close()


Start = Callable[..., Fleet]


@pytest.fixture
def start(own_server: RedisServer, tmp_path: Path) -> Iterator[Start]:
    """``start(shards=1)``: an idle fleet on a server of its own."""
    program = tmp_path / "consumer.py"
    program.write_text(PROGRAM)
    fleets: list[Fleet] = []

    def start(size: int = SIZE, shards: int = 1) -> Fleet:
        fleets.append(Fleet(own_server, program, shards))
        if size:
            fleets[-1].start(size)
        return fleets[-1]

    yield start
    for fleet in fleets:
        fleet.close()


@pytest.fixture
def fleet(start: Start) -> Fleet:
    return start()


def acked(fleet: Fleet) -> int:
    return fleet.queue.stats().acked


def test_one_consumer_of_an_idle_fleet_watches_for_all_others(fleet: Fleet) -> None:
    """Only that one looks into the queue and writes down when it will look again; the others look at the timer."""
    assert eventually(lambda: fleet.watcher() != "")
    begun, scripts, sets = time.monotonic(), fleet.calls("evalsha"), fleet.calls("set")
    seen = set()

    def watched() -> bool:
        seen.add(fleet.watcher())
        return fleet.calls("evalsha") >= scripts + 6 * SIZE

    assert eventually(watched)
    assert seen <= {*fleet.pids, ""}  # '' when the watcher is late
    assert fleet.calls("zadd") <= (time.monotonic() - fleet.begun + 10) / 10 * SIZE * 2  # rare heartbeats
    assert fleet.calls("set") - sets <= (fleet.calls("evalsha") - scripts) / 2
    assert fleet.calls("evalsha") - scripts <= (time.monotonic() - begun + 1) * SIZE * 3  # no consumer polls too often


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_watcher_is_replaced_and_nothing_is_lost(fleet: Fleet, how: signal.Signals) -> None:
    gone: set[str] = set()
    for number in range(SIZE - 1):
        assert eventually(lambda: fleet.watcher() not in {"", *gone})
        fleet.queue.send(number, delay=1.2)
        watcher = fleet.watcher()
        gone.add(watcher or next(name for name in fleet.pids if name not in gone))
        for name in gone:
            fleet.end(name, how)
        assert eventually(lambda: acked(fleet) == number + 1)  # noqa: B023
    stats = fleet.queue.stats()
    assert (stats.sent, stats.acked, stats.inside, stats.missing) == (SIZE - 1, SIZE - 1, 0, 0)


def test_new_fleet_takes_over_from_a_killed_one(fleet: Fleet) -> None:
    fleet.queue.send("x", delay=0.5)
    for name in list(fleet.pids):
        fleet.end(name, signal.SIGKILL)
    fleet.start(1)
    assert eventually(lambda: acked(fleet) == 1)


def test_paused_queue_hands_out_nothing_and_does_not_keep_the_fleet_busy(fleet: Fleet) -> None:
    fleet.queue.pause()
    fleet.queue.send_many([Outgoing(n, delay=n / 10) for n in range(10)])
    assert eventually(lambda: fleet.queue.stats().pending == 0)  # all promoted: due
    begun, scripts = time.monotonic(), fleet.calls("evalsha")
    assert eventually(lambda: fleet.calls("evalsha") >= scripts + 3 * SIZE)
    assert fleet.calls("evalsha") - scripts <= (time.monotonic() - begun + 1) * SIZE * 10
    assert (fleet.queue.stats().delivered, fleet.queue.stats().ready) == (0, 10)
    fleet.queue.resume()
    assert eventually(lambda: acked(fleet) == 10)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_message_without_a_ring_is_found(start: Start, state: str, shards: int) -> None:
    fleet = start(3, shards)
    later = fleet.queue.send("x", delay=3600)
    (key,) = fleet.redis.scan_iter(f"delayq:*:msg:{later.id}")
    base = key.partition("msg:")[0]
    assert eventually(lambda: fleet.listening() >= 3 * shards)  # no consumer is awake when the message is sent
    with fleet.redis.pipeline() as pipe:  # as if the bell's token, and all consumers that had taken it, were lost
        pipe.zrem(f"{base}pending", later.id)
        pipe.zadd(f"{base}{state}", {later.id: 1})
        pipe.delete(f"{base}bell")
        pipe.execute()
    assert eventually(lambda: acked(fleet) == 1)


def test_bell_deleted_repeatedly_delays_messages_but_loses_none(fleet: Fleet) -> None:
    for number in range(30):
        fleet.queue.send(number, delay=number % 3 / 20)
        fleet.redis.delete(f"{KEY}bell", f"{KEY}timer")
    assert eventually(lambda: acked(fleet) == 30)


def test_lease_that_expires_while_the_fleet_is_idle_is_noticed(start: Start) -> None:
    fleet = start(0)
    fleet.queue.send("x")
    assert len(fleet.queue.receive(1, lease=3)) == 1
    fleet.start(3)
    assert eventually(lambda: acked(fleet) == 1)
    assert fleet.queue.stats().lease_lost >= 1


def test_garbage_is_collected_by_an_idle_fleet(fleet: Fleet) -> None:
    sents = [fleet.queue.send(n, delay=3600) for n in range(3)]
    assert [fleet.queue.cancel(sent.id) for sent in sents] == ["cancelled"] * 3
    assert eventually(lambda: fleet.queue.stats().garbage == 0)
    assert not list(fleet.redis.scan_iter("delayq:*:msg:*"))


def test_overwritten_timer_loses_no_message(fleet: Fleet) -> None:
    fleet.redis.delete(f"{KEY}timer")
    fleet.redis.rpush(f"{KEY}timer", "no string")
    fleet.queue.send_many([Outgoing(n, delay=n / 2) for n in range(5)])
    assert eventually(lambda: acked(fleet) == 5)


def test_idle_fleet_logs_an_overwritten_structure(fleet: Fleet) -> None:
    sent = fleet.queue.send("x", delay=3600)
    assert fleet.redis.rename(f"{KEY}pending", "kept")
    fleet.redis.set(f"{KEY}pending", "no sorted set")
    assert eventually(lambda: "WRONGTYPE" in fleet.said())
    fleet.redis.zadd("kept", {sent.id: 1})  # it is due by now, and nobody rings for it
    fleet.redis.rename("kept", f"{KEY}pending")
    assert eventually(lambda: acked(fleet) == 1)


@pytest.mark.parametrize("timer", ["", "x", "9999999999999 nobody", "9999999999999"])
def test_unreadable_timer_loses_no_message(fleet: Fleet, timer: str) -> None:
    fleet.redis.set(f"{KEY}timer", timer)
    fleet.queue.send_many([Outgoing(n, delay=n / 2) for n in range(5)])
    assert eventually(lambda: acked(fleet) == 5)


def test_restart_of_the_server_loses_no_message_of_an_idle_fleet(fleet: Fleet, own_server: RedisServer) -> None:
    fleet.queue.send_many([Outgoing(n, delay=n / 2) for n in range(6)])
    own_server.kill()
    own_server.start()
    assert eventually(lambda: acked(fleet) == 6)
