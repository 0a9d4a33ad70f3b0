"""A task cancelled in the middle of a call ends, and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import redis
from redis.asyncio.connection import AbstractConnection

from delayq import Sending
from delayq.aio import Queue
from delayq.runtime.receive_wait_async import ReceiveWait
from delayq.transport import clients_async
from delayq.transport.bell_source import BellSource
from delayq.transport.fast_stream import FastStream
from delayq.transport.listener_async import BellListener
from tests.aio.conftest import Run, on_both_loops
from tests.aio.test_consumer import becomes
from tests.harness.servers import RedisServer

pytestmark = on_both_loops  # a cancellation reaches its task when the event loop lets it


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.send("second"),
        lambda queue: queue.stats(),
        lambda queue: queue.receive(wait=0.5),
    ],
    ids=["send", "stats", "receive"],
)
def test_cancellation_swallowed_by_a_send_takes_effect(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, call: Callable[[Queue], Coroutine[Any, Any, Any]]
):
    """As `asyncio.wait_for` of Python 3.11 does, once the bytes have been written."""
    send = AbstractConnection.send_packed_command
    victims: list[asyncio.Task[Any]] = []

    async def forgetful(self: AbstractConnection, *args: Any, **options: Any) -> None:
        await send(self, *args, **options)
        task = asyncio.current_task()
        if task in victims:
            victims.remove(task)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.stats()
            monkeypatch.setattr(FastStream, "is_usable", False)  # as of a connection that redis-py must check first
            monkeypatch.setattr(AbstractConnection, "send_packed_command", forgetful)
            task = asyncio.create_task(call(queue))
            victims.append(task)
            await asyncio.wait({task})
            assert not victims
            assert task.cancelled()
            await queue.stats()

    run(main())


async def forget_a_cancel_and_fail(*_: Any, **__: Any) -> None:
    """Act like a send that is cancelled once its bytes are written, and whose connection breaks before the reply."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    raise redis.ConnectionError("broken")


def test_cancellation_swallowed_by_a_failing_connect_takes_effect(run: Run, url: str, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        monkeypatch.setattr(clients_async, "check_server", forget_a_cancel_and_fail)
        async with Queue("jobs", url=url) as queue:
            task = asyncio.create_task(queue.stats())
            await asyncio.wait({task})
            assert task.cancelled()

    run(main())


def test_cancellation_swallowed_by_a_bell_before_its_connection_breaks_takes_effect(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            client: Any = await queue._executor.connected()
            bell = BellListener(client, BellSource("a-bell"))
            monkeypatch.setattr(BellListener, "_connect", forget_a_cancel_and_fail)
            task = asyncio.create_task(bell.listen())
            await asyncio.wait({task})
            assert task.cancelled()

    run(main())


def test_cancellation_swallowed_while_another_task_closes_the_connection_takes_effect(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.stats()

            async def closed(*_: Any, **__: Any) -> None:
                await asyncio.create_task(queue.close())
                with contextlib.suppress(redis.ConnectionError):
                    await forget_a_cancel_and_fail()
                raise AttributeError("of a connection that is no more")

            monkeypatch.setattr(FastStream, "is_usable", False)
            monkeypatch.setattr(AbstractConnection, "send_packed_command", closed)
            task = asyncio.create_task(queue.stats())
            await asyncio.wait({task})
            monkeypatch.undo()
            assert task.cancelled()

    run(main())


@pytest.mark.parametrize("step", range(1, 6))
def test_cancellation_while_a_bell_is_closed_takes_effect(run: Run, url: str, redis_client: redis.Redis, step: int):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            client: Any = await queue._executor.connected()
            bell = BellListener(client, BellSource("a-bell"))
            await bell.listen()
            task = asyncio.create_task(bell.close())
            for _ in range(step):
                await asyncio.sleep(0)
            accepted = task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() == accepted
            assert bell.reading is None
            assert await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 0)

    run(main())


def test_receive_cancelled_at_its_end_hands_back_its_messages(run: Run, url: str, monkeypatch: pytest.MonkeyPatch):
    end, wait = ReceiveWait.end, ReceiveWait.wait
    waiting, ending, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    waiters = set()

    async def announced(self: ReceiveWait, seconds: float) -> None:
        waiting.set()
        await wait(self, seconds)

    async def slow(self: ReceiveWait) -> None:
        waiters.add(self)
        ending.set()
        await asyncio.sleep(0.05)
        await end(self)
        ended.set()

    monkeypatch.setattr(ReceiveWait, "end", slow)
    monkeypatch.setattr(ReceiveWait, "wait", announced)

    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            for _ in range(2):
                task = asyncio.create_task(queue.receive(wait=10))
                await waiting.wait()
                sent = await queue.send("work")
                await ending.wait()
                task.cancel()
                await asyncio.wait({task})
                assert task.cancelled()
                stats = await queue.stats()
                assert (stats.unack, stats.inside) == (0, 1)
                await queue.cancel(sent.id)
                await ended.wait()
                await asyncio.sleep(0)
                for event in (waiting, ending, ended):
                    event.clear()
            assert len(waiters) == 1  # the server answers again

    run(main())


def test_cancelled_send_ends_within_its_middleware(run: Run, url: str, monkeypatch: pytest.MonkeyPatch):
    under_way = asyncio.Event()
    current: ContextVar[str] = ContextVar("current", default="none")
    seen: list[BaseException] = []
    left: list[str] = []

    async def never(*_: Any, **__: Any) -> None:
        under_way.set()
        await asyncio.Event().wait()

    def within(_: Sending) -> Iterator[None]:
        token = current.set("sending")
        try:
            yield
        except BaseException as error:
            seen.append(error)
            raise
        finally:
            current.reset(token)

    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.stats()
            queue.middleware.around_send(within)
            monkeypatch.setattr(AbstractConnection, "send_packed_command", never)

            async def send() -> None:
                try:
                    await queue.send("x")
                finally:
                    left.append(current.get())

            task = asyncio.create_task(send())
            await under_way.wait()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert left == ["none"]
            assert [type(error) for error in seen] == [asyncio.CancelledError]

    run(main())
