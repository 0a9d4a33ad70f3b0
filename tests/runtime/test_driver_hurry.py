"""A caller that is about to end does not resend what a silent server has not answered."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest

from delayq import Consumer, Message, Queue, aio
from delayq.errors import ServerError, ServerUnreachable
from delayq.runtime.bells import Bells
from delayq.runtime.effects import WakeReason
from delayq.transport import cluster_calls
from delayq.transport.clients import HURRIES
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster


def accepted(server: socket.socket) -> int:
    """How many unanswered connections were made."""
    server.setblocking(False)
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.parametrize(("hurries", "tries"), [(False, 4), (True, 1)])
def test_failed_call_is_sent_again_unless_its_caller_hurries(hurries: bool, tries: int):
    def ask() -> None:
        HURRIES.set(lambda: hurries)
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            Queue("emails", url=f"redis://127.0.0.1:{silent.getsockname()[1]}?socket_timeout=0.05") as queue,
        ):
            with pytest.raises(ServerError):
                queue.stats()
            assert accepted(silent) == tries

    copy_context().run(ask)


@pytest.mark.parametrize(("hurries", "tries"), [(False, 4), (True, 1)])
def test_failed_async_call_is_sent_again_unless_its_caller_hurries(hurries: bool, tries: int):
    async def ask() -> None:
        HURRIES.set(lambda: hurries)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"redis://127.0.0.1:{silent.getsockname()[1]}?socket_timeout=0.05"
            async with aio.Queue("emails", url=url) as queue:
                with pytest.raises(ServerError):
                    await queue.stats()
                assert accepted(silent) == tries

    asyncio.run(ask())


class Pauses:
    """Counts the pauses between the attempts of a call on a cluster."""

    def __init__(self) -> None:
        self.made = 0

    def __iter__(self) -> Iterator[float]:
        for _ in range(2):
            self.made += 1
            yield 0.001

    def __getitem__(self, _: slice) -> Pauses:
        return self


@pytest.mark.full
def test_call_to_an_unavailable_cluster_is_sent_again_unless_its_caller_hurries(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
):
    pauses = Pauses()
    monkeypatch.setattr(cluster_calls, "PAUSES", pauses)
    nodes = Cluster(start_server, masters=1)

    def tries(fails: Callable[[], object]) -> int:
        pauses.made = 0
        with pytest.raises(ServerError):
            fails()
        return pauses.made + 1

    with asyncio.Runner() as loop, Queue("emails", url=nodes.url) as queue:
        awaited = aio.Queue("emails", url=nodes.url)
        queue.stats()
        loop.run(awaited.stats())
        nodes.masters[0].stop()
        for hurries, wanted in ((False, 3), (True, 1)):
            context = copy_context()
            context.run(HURRIES.set, partial(bool, hurries))
            assert context.run(tries, queue.stats) == wanted
            assert tries(lambda: loop.run(awaited.stats(), context=context)) == wanted  # noqa: B023  # called at once
        loop.run(awaited.close())


def test_stopping_consumer_hurries_but_its_handlers_do_not(redis_server: RedisServer):
    loop, handlers, handled = list[bool](), list[bool](), threading.Event()

    def handle(_: Message) -> None:
        handlers.append(HURRIES.get()())
        handled.set()

    with Queue("emails", url=redis_server.url) as queue:
        do = queue._executor.perform

        def noted(effect: Any, repeat: bool = True) -> Any:
            if threading.current_thread().name in {"delayq-consumer", "delayq-last-call"}:
                loop.append(HURRIES.get()())
            return do(effect, repeat)

        queue._executor.perform = noted  # type: ignore[method-assign]
        consumer = Consumer(queue, handle)
        consumer.start()
        queue.send("x")
        assert handled.wait(120)
        consumer.stop()
    assert (loop[0], loop[-1], handlers) == (False, True, [False])


def test_outcome_that_fails_at_shutdown_is_sent_again_without_a_pause(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    done, handled, go_on = list[str](), threading.Event(), threading.Event()
    rest = Bells.wait

    def handle(_: Message) -> None:
        handled.set()
        go_on.wait(120)

    def resting(bells: Bells, *arguments: Any) -> WakeReason:
        done.append("rest")
        run: Any = consumer._current
        if run._engine.shutdown.deadline:  # the consumer is ending, and waits for its handler
            go_on.set()
        return rest(bells, *arguments)

    with Queue("emails", url=redis_server.url) as queue:
        do = queue._executor.perform

        def failing(steps: Any, repeat: bool = True) -> Any:
            if repeat or not go_on.is_set():
                return do(steps, repeat)
            done.append("call")
            if done.count("call") == 1:
                raise ServerUnreachable("away for a moment")
            return do(steps, repeat)

        consumer = Consumer(queue, handle, shutdown_timeout=60)
        consumer.start()
        queue.send("x")
        assert handled.wait(120)
        monkeypatch.setattr(queue._executor, "perform", failing)
        monkeypatch.setattr(Bells, "wait", resting)
        consumer.stop()
        assert queue.stats().acked == 1
    tried = done.index("call")
    assert done[tried : tried + 2] == ["call", "call"]
