"""An exception at any line of a call that needs a new connection, or a cancellation at any wait.

The next calls get their own replies, and no connection leaks. Such exceptions are Ctrl-C that a program survives,
`signal.alarm`, and the soft time limits of other systems.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import hiredis
import pytest
import redis
from redis import asyncio as async_redis
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.connection import AbstractConnection

from delayq import Consumer, Outgoing, Queue, Topic, aio
from delayq.protocol.command import Command, identity
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.queue_keys import QueueKeys
from delayq.transport import clients, clients_async, cluster_async
from delayq.transport.bell_source import BellSource
from delayq.transport.executor import Executor
from delayq.transport.listener import BellListener
from delayq.transport.listener_async import BellListener as AsyncBellListener
from tests.aio.conftest import Run
from tests.conftest import StartServer
from tests.harness.interrupts import Cancelling, Interrupt, Interrupted, cancelled_at
from tests.harness.lua.every import CALLS
from tests.harness.proxy import Proxy
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster, Watched
from tests.harness.waiting import eventually

STRIDE, MORE = 31, 7  # lines, of hundreds; all of them take half an hour

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # what an interrupt loses ends as garbage


@pytest.fixture(params=[STRIDE, pytest.param(MORE, marks=pytest.mark.full)], ids=["some-lines", "more-lines"])
def stride(request: pytest.FixtureRequest) -> int:
    """Every how many lines of a call are interrupted."""
    return 1 if request.param == MORE and request.config.getoption("--lot") == "all" else int(request.param)


def sees_nothing(*_: object, **__: object) -> bool:
    return False


@pytest.fixture(autouse=True)
def latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies are still on their way when redis-py looks whether a connection that it lends holds one."""
    monkeypatch.setattr(AbstractConnection, "can_read", sees_nothing)


def ask(executor: Executor, key: str, marker: str) -> list[Any]:
    """Three calls on each of the two paths, each with an answer of its own."""
    plain = [Command(key, ("HINCRBY", key, f"{marker}{n}", "0"), identity) for n in range(3)]
    others = [Command(key, ("ECHO", f"{marker}{n}"), identity) for n in range(3)]
    sized = [Command(f"{key}:{n}", ("MGET", f"{key}:{n}"), identity) for n in range(3)]
    return [executor.run([call]) for call in (*others, *sized, *plain)]


def expected(marker: str) -> list[Any]:
    return [[f"{marker}{n}".encode()] for n in range(3)] + [[[None]]] * 3 + [[0]] * 3


def survives(
    executor: Executor,
    call: Callable[[], object],
    stride: int,
    renew: Callable[[], object],
    connections: Callable[[], int],
    most: int,
    key: str = "{k}",
) -> int:
    """Interrupt a call at each `stride`-th line, and ask afterwards; return how many lines there are."""
    at = 1
    while True:
        renew()
        error = Interrupted() if at % 2 else KeyboardInterrupt()
        with Interrupt(at, error) as interrupt, contextlib.suppress(Interrupted, KeyboardInterrupt, redis.RedisError):
            call()
        if interrupt.where is None:
            gc.collect()
            assert eventually(lambda: connections() <= most)
            return at
        del error
        marker = f"m{at}-"
        assert ask(executor, key, marker) == expected(marker), interrupt.where
        assert clients.REPEATS.get(), f"calls are no longer repeated after {interrupt.where}"
        if at // stride % 8 == 0:  # collecting takes longer than all else
            gc.collect()
            assert eventually(lambda: connections() <= most), f"a connection leaks, up to {interrupt.where}"
        at += stride


@contextlib.contextmanager
def counting(*servers: RedisServer) -> Iterator[Callable[[], int]]:
    """Count the connections of delayq's clients."""
    with contextlib.ExitStack() as stack:
        admins = [stack.enter_context(server.client()) for server in servers]
        yield lambda: sum(each["name"] == "delayq" for admin in admins for each in admin.client_list())


def fresh(client: Any) -> None:
    """Make the next call need a new connection."""
    clients.close_idle(client)


KINDS: dict[str, Callable[[RedisServer], Any]] = {
    "own": lambda _: None,
    "shared": lambda server: redis.Redis.from_url(server.url, client_name="delayq", protocol=2),
    "shared-blocking": lambda server: redis.Redis.from_pool(
        redis.BlockingConnectionPool.from_url(server.url, client_name="delayq", protocol=2)
    ),
    "other-database": lambda _: None,
}
OWN_FIRST = [kind if kind == "own" else pytest.param(kind, marks=pytest.mark.full) for kind in KINDS]


@pytest.mark.parametrize("kind", OWN_FIRST)
@pytest.mark.parametrize("path", ["direct", "redis-py", "pipeline"])
def test_interrupted_connect_poisons_no_later_call(
    redis_server: RedisServer, stride: int, kind: str, path: str
) -> None:
    url = redis_server.url
    if kind == "other-database":
        url += "?db=3"
    shared = KINDS[kind](redis_server)
    with (
        counting(redis_server) as connections,
        Queue("jobs", url=url) if shared is None else Queue("jobs", redis=shared) as queue,
    ):
        executor = queue._executor
        calls = {
            "direct": lambda: queue.cancel("nobody"),
            "redis-py": lambda: executor.run([Command("{k}", ("ECHO", "x"), identity)]),
            "pipeline": lambda: executor.run([Command("{k}", ("ECHO", "x"), identity)] * 3),
        }
        queue.stats()

        def renew() -> None:
            executor._sockets.close()  # type: ignore[union-attr]
            fresh(executor.client)

        lines = survives(executor, calls[path], stride, renew, connections, most=2 if shared is None else 30)
        assert lines > 100
        assert queue.cancel("nobody") == "unknown"
    if shared is not None:
        shared.close()


@pytest.mark.parametrize("kind", OWN_FIRST)
def test_interrupted_first_call_poisons_no_later_one(redis_server: RedisServer, stride: int, kind: str) -> None:
    shared = KINDS[kind](redis_server)
    with (
        counting(redis_server) as connections,
        Queue("jobs", url=redis_server.url) if shared is None else Queue("jobs", redis=shared) as queue,
    ):
        executor = queue._executor

        def renew() -> None:
            queue.close()
            if shared is not None:
                fresh(shared)

        survives(executor, queue.stats, 5 * stride, renew, connections, most=2 if shared is None else 30)
    if shared is not None:
        shared.close()


def test_interrupted_connect_to_a_cluster_poisons_no_later_call(shared_cluster: Cluster, stride: int) -> None:
    with counting(*shared_cluster.nodes) as connections, Queue("jobs", url=shared_cluster.url, shards=6) as queue:
        executor = queue._executor
        queue.stats()
        lines = survives(
            executor, queue.stats, 2 * stride, lambda: fresh(executor.client), connections, most=3, key="{k}"
        )
        assert lines > 100


def test_interrupted_listener_takes_no_other_reply_for_a_token(
    redis_server: RedisServer, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        counting(redis_server) as connections,
        Queue("jobs", url=redis_server.url) as queue,
        redis_server.client() as other,
    ):
        executor = queue._executor
        queue.stats()
        bell = BellListener(executor.client, BellSource("{k}:bell"))

        def listen() -> None:
            bell.listen()
            monkeypatch.undo()
            other.rpush("{k}:bell", "token")
            while not bell.take_token():
                pass
            bell.listen()
            bell.stop_listening()

        def renew() -> None:
            bell.close()
            other.delete("{k}:bell")
            executor._sockets.close()  # type: ignore[union-attr]
            fresh(executor.client)
            monkeypatch.setattr(AbstractConnection, "can_read", sees_nothing)

        def checked() -> int:
            monkeypatch.undo()
            bell.stop_listening()  # may return the token of the interrupted call
            other.delete("{k}:bell")
            bell.listen()
            assert bell.take_token() is False
            other.rpush("{k}:bell", "token")
            assert any(bell.take_token() for _ in range(100_000))
            bell.close()
            return connections()

        survives(executor, listen, stride, renew, checked, most=3)


def test_interrupted_publish_poisons_no_later_call(redis_server: RedisServer, stride: int) -> None:
    with counting(redis_server) as connections, Topic("orders", url=redis_server.url) as topic:
        executor = topic._executor
        topic.publish(1)

        def renew() -> None:
            executor._sockets.close()  # type: ignore[union-attr]
            fresh(executor.client)

        survives(executor, lambda: topic.publish(2), stride, renew, connections, most=2)


@pytest.mark.full
def test_interrupted_search_for_the_master_poisons_no_later_call(start_server: StartServer, stride: int) -> None:
    watched = Watched(start_server)
    with counting(watched.master, *watched.sentinels) as connections, Queue("jobs", url=watched.url) as queue:
        executor = queue._executor

        def renew() -> None:
            queue.close()

        survives(executor, queue.stats, 3 * stride, renew, connections, most=4)


def test_real_signals_at_any_time_poison_no_later_call(redis_server: RedisServer) -> None:
    """Replies take a while, as signals mostly end a wait."""

    def end(*_: object) -> None:
        raise Interrupted

    def late(_: str) -> None:
        time.sleep(0.0005)

    before = signal.signal(signal.SIGALRM, end)
    try:
        with Proxy(redis_server.socket, late) as proxy, Queue("jobs", url=proxy.url) as queue:
            executor = queue._executor
            queue.stats()
            for shot in range(150):
                executor._sockets.close()  # type: ignore[union-attr]
                fresh(executor.client)
                with contextlib.suppress(Interrupted):
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + shot * 0.00003)
                    queue.cancel("nobody")
                    queue.stats()
                with contextlib.suppress(Interrupted):
                    signal.setitimer(signal.ITIMER_REAL, 0)
                assert ask(executor, "{k}", f"s{shot}-") == expected(f"s{shot}-")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- what hiredis packs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_words_of_a_script_are_text(name: str) -> None:
    """Hiredis crashes the process if a signal handler raises while it converts an int."""
    words = CALLS[name](QueueCommands(QueueKeys("delayq", "jobs"), lambda: 1.5)).words()
    assert {type(word) for word in words} <= {str, bytes}


def test_everything_that_hiredis_packs_is_text(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[Any] = []
    pack: Any = hiredis.pack_command

    def noting(words: Any) -> Any:
        packed.extend(words)
        return pack(words)

    monkeypatch.setattr(hiredis, "pack_command", noting)
    url = f"{redis_server.url}?db=3"
    with Queue("jobs", url=url, max_retries=1) as queue, Topic("orders", url=url) as topic:
        queue.send_many([Outgoing(n, delay=0) for n in range(3)])
        queue.send(1, delay=60, id="x", wait_replicas=0)
        queue.schedules.add("nightly", "@daily", 1)
        handled: list[Any] = []
        Consumer(queue, handled.append, concurrency=2).drain()
        assert len(handled) == 3
        queue.pause(2)
        queue.resume()
        queue.configure(rate="1000/s")
        for message in queue.receive(wait=0.01):
            message.extend(5)
            message.nack(1)
        queue.peek("pending")
        queue.stats()
        topic.publish(1)
        group = topic.group("g", start="0")
        group.poll("me", wait=0.01)
        bell = BellListener(queue._executor.client, BellSource("{k}:bell"))
        bell.listen()
        bell.stop_listening()
        bell.close()
    assert len(packed) > 100
    assert {type(word) for word in packed} <= {str, bytes}


# -- async: a cancellation at each wait ----------------------------------------------------------------------------


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(autouse=True)
def async_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cannot_read(*_: object, **__: object) -> bool:
        return False

    for name in ("can_read", "can_read_destructive"):
        monkeypatch.setattr(AsyncConnection, name, cannot_read, raising=False)


async def ask_async(executor: Any, key: str, marker: str) -> list[Any]:
    plain = [Command(key, ("HINCRBY", key, f"{marker}{n}", "0"), identity) for n in range(3)]
    others = [Command(key, ("ECHO", f"{marker}{n}"), identity) for n in range(3)]
    sized = [Command(f"{key}:{n}", ("MGET", f"{key}:{n}"), identity) for n in range(3)]
    return [await executor.run([call]) for call in (*others, *sized, *plain)]


async def survives_cancels(
    executor: Any,
    call: Callable[[], Coroutine[Any, Any, Any]],
    renew: Callable[[], Awaitable[object]],
    connections: Callable[[], int],
    most: int,
) -> int:
    """Cancel a call at each of its waits, and ask afterwards; return how many there are."""
    for at in itertools.count(1):
        await renew()
        if not await cancelled_at(at, call):
            return at
        marker = f"m{at}-"
        assert await ask_async(executor, "{k}", marker) == expected(marker), at
        gc.collect()
        assert await eventually_async(lambda: connections() <= most), at
    raise AssertionError


async def eventually_async(condition: Callable[[], bool]) -> bool:
    for _ in range(1000):
        if condition():
            return True
        await asyncio.sleep(0.005)
    return False


@pytest.mark.parametrize("kind", ["own", pytest.param("shared", marks=pytest.mark.full)])
@pytest.mark.parametrize("path", ["first", "call", pytest.param("listener", marks=pytest.mark.full)])
def test_cancelled_connect_poisons_no_later_call(redis_server: RedisServer, run: Run, kind: str, path: str) -> None:
    async def main() -> None:
        shared = async_redis.Redis.from_url(redis_server.url, client_name="delayq") if kind == "shared" else None
        options: dict[str, Any] = {"redis": shared} if shared is not None else {"url": redis_server.url + "?db=3"}
        with counting(redis_server) as connections:
            async with aio.Queue("jobs", **options) as queue:
                executor = queue._executor
                await queue.stats()
                bell: Any = None

                async def listen() -> None:
                    await bell.listen()
                    await bell.stop_listening()

                async def renew() -> None:
                    nonlocal bell
                    if bell is not None:
                        await bell.close()
                    if path == "first":
                        await executor.close()
                    if path != "first" or shared is not None:
                        await clients_async.close_idle(await executor.connected() if shared is None else shared)
                    source = BellSource("{k}:bell")
                    bell = AsyncBellListener(await executor.connected(), source) if path == "listener" else None
                    if bell is not None:
                        await clients_async.close_idle(await executor.connected())

                call = listen if path == "listener" else lambda: queue.cancel("nobody")
                waits = await survives_cancels(executor, call, renew, connections, most=3)
                assert waits > 4
                assert await queue.cancel("nobody") == "unknown"
            if shared is not None:
                await shared.aclose()

    run(main())


@pytest.mark.parametrize("is_new", [False, pytest.param(True, marks=pytest.mark.full)])
def test_cancelled_connect_to_a_cluster_poisons_no_later_call(
    shared_cluster: Cluster, run: Run, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node's calls are in a task of their own: the call is cancelled at each wait of one of them."""
    calls_of_node = cluster_async._NodeCalls.run

    async def main() -> None:
        with counting(*shared_cluster.nodes) as connections:
            async with aio.Queue("jobs", url=shared_cluster.url, shards=6) as queue:
                executor = queue._executor
                await queue.stats()

                async def renew() -> None:
                    if is_new:
                        await executor.close()
                    else:
                        await clients_async.close_idle(await executor.connected())

                assert await survives_cancels(executor, queue.stats, renew, connections, most=6) > 2
                for at in itertools.count(1):
                    await renew()
                    task = asyncio.ensure_future(queue.stats())
                    talks: list[Cancelling] = []

                    async def cancelling(calls: Any, task: Any = task, talks: Any = talks, at: int = at) -> None:
                        talks.append(Cancelling(calls_of_node(calls), at, task.cancel))
                        await talks[-1]

                    with monkeypatch.context() as patch:
                        patch.setattr(cluster_async._NodeCalls, "run", cancelling)
                        await asyncio.wait({task})
                    assert await ask_async(executor, "{k}", f"n{at}-") == expected(f"n{at}-"), at
                    gc.collect()
                    assert await eventually_async(lambda: connections() <= 6), at
                    if not any(each.happened for each in talks):
                        assert at > (1 if is_new else 4)
                        break
                    assert task.cancelled()

    run(main())
