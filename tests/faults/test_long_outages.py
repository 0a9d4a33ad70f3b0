"""The server is away for about as long as a lease, or longer, while handlers run: nothing runs beside itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from delayq import Consumer, Message, NewRecord, Outgoing, Queue, Topic, TopicConsumer, aio
from tests.harness import beside
from tests.harness.beside import Runs
from tests.harness.proxy import Proxy
from tests.harness.servers import RedisServer
from tests.harness.waiting import Stopwatch, eventually

GRACE = 6.0
SLACK = 4.0  # this machine may be slow
SHARES = [0.1, 0.9, 1.5, 3.0]  # handlers, in leases; each consumer runs one of each

Trouble = Callable[[RedisServer, Proxy, float], None]


def killed(server: RedisServer, _: Proxy, seconds: float) -> None:
    server.kill()
    time.sleep(seconds)
    server.start()


def frozen(server: RedisServer, _: Proxy, seconds: float) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(server.pid, signal.SIGCONT)


def cut(_: RedisServer, proxy: Proxy, seconds: float) -> None:
    proxy.cut()
    time.sleep(seconds)
    proxy.mend()


class SteppedClock:
    """A clock that all scripts use instead of the server's, as the preloaded one of `server_clock` may be missing."""

    def __init__(self) -> None:
        self.offset = 0.0

    def __call__(self) -> float:
        return time.time() * 1000 + self.offset


class Fleet:
    """Consumers of a queue or a topic, each on its own client, and what must hold at the end."""

    def __init__(self, url: str, lease: float, clock: Callable[[], float | str] = str) -> None:
        self.url, self.lease, self.clock = url, lease, clock
        self._stack = ExitStack()

    def queue(self) -> Queue:
        queue = self._stack.enter_context(Queue("long", url=self.url, lease=self.lease, max_retries=0))
        if self.clock is not str:
            queue._context.begin(self.clock)
        return queue

    def start(self, life: str) -> None:
        """Start a consumer that stops when the fleet ends."""
        if life == "async":
            self._stack.enter_context(self._async())
            return
        pool = "process" if life == "processes" else "thread"
        consumer = Consumer(self.queue(), beside.run, concurrency=4, pool=pool, shutdown_timeout=0.1)  # type: ignore[arg-type]
        consumer.start()
        self._stack.callback(consumer.stop)

    @contextmanager
    def _async(self) -> Iterator[None]:
        ended = asyncio.Event()

        async def live() -> None:
            async with aio.Queue("long", url=self.url, lease=self.lease, max_retries=0) as queue:
                if self.clock is not str:
                    queue._context.begin(self.clock)
                consumer = aio.Consumer(queue, beside.run_async, concurrency=4, shutdown_timeout=0.1)
                await consumer.start()
                await ended.wait()
                await consumer.stop()

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_until_complete, args=[live()])
        thread.start()
        yield
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()

    def close(self) -> None:
        self._stack.close()


def check(runs: Runs, fleet: Fleet, lives: list[str], trouble: Callable[[], None], set_back: float = 0.0) -> None:
    """Nothing runs beside itself, nothing done is buried, and what a dead consumer held comes back."""
    queue, lease = fleet.queue(), fleet.lease
    shares = SHARES * len(lives)
    queue.send_many([Outgoing(runs.payload(number, share * lease)) for number, share in enumerate(shares)])
    for life in lives:
        fleet.start(life)
    lost = len(shares)
    assert eventually(lambda: len(runs.begun()) == lost)
    queue.send(runs.payload(lost, 0.0), max_retries=1, id="lost")
    deadline = time.monotonic() + 30
    while not (held := queue.receive(1)) and time.monotonic() < deadline and lost not in runs.begun():
        time.sleep(0.001)  # a consumer may have been faster
    trouble()
    if held:
        with Stopwatch() as watch:
            assert eventually(lambda: lost in runs.begun())
        assert watch.running < lease + 1 + GRACE + SLACK + set_back  # a lease lasts longer on such a clock
    assert eventually(lambda: runs.ended() == lost + 1)
    assert eventually(lambda: queue.stats().unack == 0)
    stats = queue.stats()
    fleet.close()
    assert runs.beside() == []
    assert runs.begun() == dict.fromkeys(range(lost + 1), 1)
    assert (stats.acked, stats.dead, stats.lease_lost) == (lost + 1, 0, len(held))


@pytest.mark.by_lot(5)
@pytest.mark.parametrize(
    ("trouble", "lease", "outage"),
    [
        (killed, 2.0, 1.1),
        *(
            pytest.param(trouble, 4.0, outage, marks=pytest.mark.full)
            for trouble in (killed, frozen, cut)
            for outage in (0.5, 0.9, 1.1, 3.0)
        ),
    ],
)
@pytest.mark.parametrize("lives", [["sync", "async"], pytest.param(["processes"] * 2, marks=pytest.mark.full)])
def test_nothing_runs_beside_itself_after_an_outage(
    own_server: RedisServer, tmp_path: Path, lives: list[str], trouble: Trouble, lease: float, outage: float
):
    with Proxy(own_server.socket) as proxy:
        fleet = Fleet(proxy.url, lease)
        check(Runs(tmp_path / "runs"), fleet, lives, lambda: trouble(own_server, proxy, outage * lease))


@pytest.mark.by_lot(5)
@pytest.mark.parametrize(
    ("trouble", "lease", "outage"),
    [
        (cut, 2.0, 1.1),
        *(
            pytest.param(trouble, 4.0, outage, marks=pytest.mark.full)
            for trouble in (killed, frozen, cut)
            for outage in (0.5, 0.9, 1.1, 3.0)
        ),
    ],
)
def test_no_record_runs_beside_itself_after_an_outage(
    own_server: RedisServer, tmp_path: Path, trouble: Trouble, lease: float, outage: float
):
    runs, loop, ended = Runs(tmp_path / "runs"), asyncio.new_event_loop(), asyncio.Event()
    shares = SHARES * 2
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(own_server.socket))
        topics = [stack.enter_context(Topic("long", url=proxy.url)) for _ in range(2)]
        group = topics[0].group("g", "0")
        topics[0].publish_many([NewRecord(runs.payload(at, share * lease)) for at, share in enumerate(shares)])

        async def live() -> None:
            async with aio.Topic("long", url=proxy.url) as topic:
                consumer = aio.TopicConsumer(
                    await topic.group("g"), beside.run_async, concurrency=4, ack_timeout=lease, shutdown_timeout=0.1
                )
                await consumer.start()
                await ended.wait()
                await consumer.stop()

        thread = threading.Thread(target=loop.run_until_complete, args=[live()])
        thread.start()
        stack.callback(loop.close)
        stack.callback(thread.join)
        stack.callback(loop.call_soon_threadsafe, ended.set)
        consumer = TopicConsumer(
            topics[1].group("g"), beside.run, concurrency=4, ack_timeout=lease, shutdown_timeout=0.1
        )
        consumer.start()
        stack.callback(consumer.stop)
        lost = len(shares)
        assert eventually(lambda: len(runs.begun()) == lost)
        trouble(own_server, proxy, outage * lease)
        assert eventually(lambda: runs.ended() == lost and not group.unacked())
    assert runs.beside() == []
    assert runs.begun() == dict.fromkeys(range(lost), 1)


@pytest.mark.by_lot(2)
@pytest.mark.full
@pytest.mark.parametrize("steps", [[0.9], [1.1], [3.0], [1.1, -1.1], [-3.0]])
def test_nothing_runs_beside_itself_after_a_clock_step(own_server: RedisServer, tmp_path: Path, steps: list[float]):
    clock = SteppedClock()
    fleet = Fleet(own_server.url, 6.0, clock)

    def step() -> None:
        for leases in steps:
            clock.offset += leases * fleet.lease * 1000
            time.sleep(1.5)

    check(Runs(tmp_path / "runs"), fleet, ["sync", "async"], step, max(0.0, -sum(steps) * fleet.lease))


HOLDER = """
import sys, time
from delayq import Consumer, Queue

def hold(message):
    print(flush=True)
    time.sleep(60)

Consumer(Queue("idle", url=sys.argv[1], lease=2), hold, concurrency=1).run()
"""


@contextmanager
def holding(url: str) -> Iterator[tuple[Queue, subprocess.Popen[bytes]]]:
    """A queue, and a process that handles its only message."""
    with Queue("idle", url=url, lease=2) as queue:
        queue.send("x")
        with subprocess.Popen([sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"\n"
            yield queue, holder


@pytest.mark.full
def test_killed_consumer_of_an_idle_fleet_is_replaced_without_a_grace(redis_server: RedisServer):
    taken: list[Message] = []
    with ExitStack() as stack:
        queue, holder = stack.enter_context(holding(redis_server.url))
        for _ in range(3):
            other = stack.enter_context(Queue("idle", url=redis_server.url, lease=2))
            consumer = Consumer(other, taken.append)
            consumer.start()
            stack.callback(consumer.stop)
        assert eventually(lambda: len(queue.consumers()) == 4)
        time.sleep(3)  # they come to rest
        with Stopwatch() as watch:
            holder.kill()
            assert eventually(lambda: bool(taken))
        assert watch.running < 2 + 1 + 2  # a lease, the fallback, and a slow machine; less than a grace


@pytest.mark.full
def test_killed_consumer_is_replaced_by_a_program_that_receives_now_and_then(redis_server: RedisServer):
    """The first call after the end of the lease returns the message, even without `wait`; later ones do not wait."""
    with holding(redis_server.url) as (queue, holder):
        holder.kill()
        time.sleep(5)  # stands for a minute
        (message,) = queue.receive(lease=1)
        assert message.attempt == 2
        time.sleep(5)
        with Stopwatch() as watch:
            (message,) = queue.receive(lease=1)
        assert (message.attempt, watch.running < 3) == (3, True)
