"""How long a call takes at most while the server does not answer."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from delayq import Outgoing, Queue, ServerUnreachable, aio
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster
from tests.harness.waiting import Stopwatch

pytestmark = pytest.mark.same_on_all_servers

DEFAULT = "socket_timeout=5"  # other tests have a longer one
QUICK = "socket_timeout=0.5&retry_timeout=0.6"
EARLY = 4  # clients that connect before their server freezes


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def timed(call: Callable[[], Any]) -> Stopwatch:
    """Measure a call until it raises ServerUnreachable."""
    with Stopwatch() as watch, pytest.raises(ServerUnreachable):
        call()
    return watch


class Calls:
    """Calls of clients that are connected before `freeze` is set, and of two that connect after it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.freeze = threading.Event()
        self._connected = threading.Semaphore(0)

    def all(self) -> list[Callable[[], Stopwatch]]:
        """Return functions that make a call and measure it."""
        return [
            lambda: self._early(lambda queue: queue.send("x")),
            lambda: self._early(lambda queue: queue.send_many([Outgoing("x")])),
            lambda: self._early(lambda queue: queue.stats()),
            lambda: asyncio.run(self._early_async()),
            lambda: asyncio.run(self._late_async()),
            self._late,
        ]

    def wait_connected(self) -> None:
        """Wait until all clients that connect early have done so."""
        for _ in range(EARLY):
            assert self._connected.acquire(timeout=120)

    def _early(self, call: Callable[[Queue], object]) -> Stopwatch:
        with Queue("jobs", url=self._url) as queue:
            queue.stats()
            self._connected.release()
            self.freeze.wait()
            return timed(lambda: call(queue))

    async def _early_async(self) -> Stopwatch:
        async with aio.Queue("jobs", url=self._url) as queue:
            await queue.stats()
            self._connected.release()
            await asyncio.to_thread(self.freeze.wait)
            with Stopwatch() as watch, pytest.raises(ServerUnreachable):
                await queue.send("x")
            return watch

    async def _late_async(self) -> Stopwatch:
        await asyncio.to_thread(self.freeze.wait)
        with Stopwatch() as watch:
            async with aio.Queue("jobs", url=self._url) as queue:
                with pytest.raises(ServerUnreachable):
                    await queue.send("x")
        return watch

    def _late(self) -> Stopwatch:
        self.freeze.wait()
        with Queue("jobs", url=self._url) as queue:
            return timed(lambda: queue.send("x"))


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [(QUICK, 0.9, 2), pytest.param(DEFAULT, 9.9, 11.5, marks=pytest.mark.full)],
    ids=["quick", "defaults"],
)
def test_call_to_a_frozen_server_ends_in_time(own_server: RedisServer, settings: str, least: float, most: float):
    calls = Calls(f"{own_server.url}?{settings}")
    with ThreadPoolExecutor(len(calls.all())) as pool:
        running = [pool.submit(each) for each in calls.all()]
        calls.wait_connected()
        with frozen(own_server):
            calls.freeze.set()
            took = [each.result() for each in running]
    assert min(each.elapsed for each in took) > least
    assert max(each.running for each in took) < most


@pytest.mark.parametrize(
    ("settings", "most"),
    [(QUICK, 1.8), pytest.param(DEFAULT, 11.5, marks=pytest.mark.full)],
    ids=["quick", "defaults"],
)
def test_idle_connections_add_one_check_to_a_call(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, settings: str, most: float
):
    """Each is checked before it is used, but if the first one is silent, so are the others."""
    monkeypatch.setattr("delayq.transport.fast_socket._CHECK_AFTER_SECONDS", 0.0)
    with (
        Queue("jobs", url=f"{own_server.url}?{settings}") as repeated,
        Queue("jobs", url=f"{own_server.url}?{settings}") as once,
        ThreadPoolExecutor(2) as pool,
    ):
        leave_idle(repeated, 8)
        leave_idle(once, 8)
        with frozen(own_server):
            calls = [
                pool.submit(timed, lambda: repeated.send("x")),
                pool.submit(timed, lambda: once.send("x", id="a", on_conflict="error")),
            ]
            took = [each.result().running for each in calls]
        assert max(took) < most


def leave_idle(queue: Queue, count: int) -> None:
    """Leave as many connections idle as threads that send at the same time."""
    queue.stats()
    sockets: Any = queue._executor._sockets
    begun = contextvars.copy_context()  # the call that takes one marks when it began
    for each in [begun.run(sockets.take, True, time.perf_counter()) for _ in range(count)]:
        sockets._idle.append(each)


@pytest.mark.full
def test_call_to_a_frozen_cluster_ends_in_time(start_server: StartServer):
    """Its slots could be read from any other node, each of which may be silent, too."""
    cluster = Cluster(start_server, masters=3)
    calls = Calls(f"{cluster.url}?{QUICK}")
    with ThreadPoolExecutor(EARLY) as pool, ExitStack() as all_frozen:
        running = [pool.submit(each) for each in calls.all()[:EARLY]]  # opening takes an attempt for each node
        calls.wait_connected()
        for node in cluster.masters:
            all_frozen.enter_context(frozen(node))
        calls.freeze.set()
        took = [each.result() for each in running]
    assert min(each.elapsed for each in took) > 0.4
    assert max(each.running for each in took) < 1.6


def test_call_is_sent_again_after_one_silent_attempt(own_server: RedisServer):
    with Queue("jobs", url=f"{own_server.url}?socket_timeout=0.5") as queue:
        queue.stats()
        with frozen(own_server):
            thread = threading.Timer(0.8, lambda: os.kill(own_server.pid, signal.SIGCONT))
            thread.start()
            queue.send("x")
            thread.join()
        assert queue.stats().sent == 1


@pytest.mark.full
def test_call_ends_in_time_if_packets_are_dropped():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(3)]  # they fill the backlog; the kernel drops what follows
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            url = f"redis://127.0.0.1:{full.getsockname()[1]}/0"
            took = timed(lambda: Queue("jobs", url=url).send("x"))
            assert took.elapsed > 12
            assert took.running < 15
        finally:
            for each in waiting:
                each.close()
