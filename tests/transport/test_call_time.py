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

pytestmark = pytest.mark.same_on_all_servers

DEFAULT = "socket_timeout=5"  # other tests have a longer one
QUICK = "socket_timeout=0.5&retry_timeout=0.6"


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes until it raises ServerUnreachable."""
    began = time.monotonic()
    with pytest.raises(ServerUnreachable):
        call()
    return time.monotonic() - began


def failing_calls(url: str, freeze: threading.Event) -> list[Callable[[], float]]:
    """Return functions that connect, wait for `freeze`, and say how long their call took; and two that connect late."""

    def connected(call: Callable[[Queue], object]) -> float:
        with Queue("jobs", url=url) as queue:
            queue.stats()
            freeze.wait()
            return seconds(lambda: call(queue))

    async def connected_async() -> float:
        async with aio.Queue("jobs", url=url) as queue:
            await queue.stats()
            await asyncio.to_thread(freeze.wait)
            began = time.monotonic()
            with pytest.raises(ServerUnreachable):
                await queue.send("x")
            return time.monotonic() - began

    async def late_async() -> float:
        await asyncio.to_thread(freeze.wait)
        began = time.monotonic()
        async with aio.Queue("jobs", url=url) as queue:
            with pytest.raises(ServerUnreachable):
                await queue.send("x")
        return time.monotonic() - began

    def late() -> float:
        freeze.wait()
        with Queue("jobs", url=url) as queue:
            return seconds(lambda: queue.send("x"))

    return [
        lambda: connected(lambda queue: queue.send("x")),
        lambda: connected(lambda queue: queue.send_many([Outgoing("x")])),
        lambda: connected(lambda queue: queue.stats()),
        lambda: asyncio.run(connected_async()),
        lambda: asyncio.run(late_async()),
        late,
    ]


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [(QUICK, 0.9, 2), pytest.param(DEFAULT, 9.9, 11.5, marks=pytest.mark.full)],
    ids=["quick", "defaults"],
)
def test_call_to_a_frozen_server_ends_in_time(own_server: RedisServer, settings: str, least: float, most: float):
    freeze = threading.Event()
    calls = failing_calls(f"{own_server.url}?{settings}", freeze)
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(each) for each in calls]
        time.sleep(0.5)  # they connect
        with frozen(own_server):
            freeze.set()
            took = [each.result() for each in running]
    assert min(took) > least
    assert max(took) < most


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
                pool.submit(seconds, lambda: repeated.send("x")),
                pool.submit(seconds, lambda: once.send("x", id="a", on_conflict="error")),
            ]
            took = [each.result() for each in calls]
        assert max(took) < most


def leave_idle(queue: Queue, count: int) -> None:
    """Leave as many connections idle as threads that send at the same time."""
    queue.stats()
    sockets: Any = queue._executor._sockets
    begun = contextvars.copy_context()  # the call that takes one marks when it began
    for each in [begun.run(sockets.take, True, time.perf_counter()) for _ in range(count)]:
        sockets.give_back(each)


@pytest.mark.full
def test_call_to_a_frozen_cluster_ends_in_time(start_server: StartServer):
    """Its slots could be read from any other node, each of which may be silent, too."""
    cluster = Cluster(start_server, masters=3)
    freeze = threading.Event()
    calls = failing_calls(f"{cluster.url}?{QUICK}", freeze)[:4]  # opening takes an attempt for each node
    with ThreadPoolExecutor(len(calls)) as pool, ExitStack() as all_frozen:
        running = [pool.submit(each) for each in calls]
        time.sleep(1)  # they connect
        for node in cluster.masters:
            all_frozen.enter_context(frozen(node))
        freeze.set()
        took = [each.result() for each in running]
    assert min(took) > 0.4
    assert max(took) < 1.6


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
            assert 12 < seconds(lambda: Queue("jobs", url=url).send("x")) < 15
        finally:
            for each in waiting:
                each.close()
