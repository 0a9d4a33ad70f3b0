"""The tasks of async handlers: few for handlers that do not wait, one for each that does."""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from delayq.model.outcome import DONE, INTERRUPTED, RELEASED, Failed
from delayq.runtime.task_pool import BURST_SECONDS, TaskPool

Pool = TaskPool[Any]
current: ContextVar[str] = ContextVar("current", default="none")


def handled(handler: Callable[[Any], Awaitable[Any]], count: int, concurrency: int = 8) -> dict[str, Any]:
    """The outcomes of messages that a pool has handled, by id."""
    return asyncio.run(_handled(handler, count, concurrency))


async def _handled(handler: Callable[[Any], Awaitable[Any]], count: int, concurrency: int) -> dict[str, Any]:
    pool = Pool(lambda _: handler, concurrency, lambda _: True, lambda: None)
    pool.submit(messages(count))
    return await ended(pool, count)


def messages(count: int) -> list[Any]:
    return [SimpleNamespace(id=str(number), is_unreadable=False) for number in range(count)]


async def ended(pool: Pool, count: int) -> dict[str, Any]:
    outcomes: list[Any] = []
    async with asyncio.timeout(60):
        while len(outcomes) < count or pool.tasks:
            await asyncio.sleep(0.001)
            outcomes += pool.outcomes()
    assert len(outcomes) == count, "each message has one outcome"
    return {message.id: outcome for message, outcome in outcomes}


def test_handlers_that_do_not_wait_share_tasks() -> None:
    tasks: list[Any] = []

    async def handle(_: Any) -> None:
        tasks.append(asyncio.current_task())

    assert set(handled(handle, 100, concurrency=4).values()) == {DONE}
    assert len(tasks) == 100
    assert len(set(tasks)) <= 4


def test_each_handler_that_waits_has_a_task_that_bears_its_name() -> None:
    tasks: list[Any] = []

    async def handle(message: Any) -> None:
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        assert tasks[-1].get_name() == f"delayq-{message.id}"

    assert set(handled(handle, 100, concurrency=4).values()) == {DONE}
    assert len(set(tasks)) == 100


@pytest.mark.parametrize("quick", [0, 1, 50])
def test_as_many_handlers_wait_at_once_as_may(quick: int) -> None:
    """Also if those before them did not wait."""
    running: set[str] = set()
    most = 0

    async def handle(message: Any) -> None:
        nonlocal most
        if int(message.id) < quick:
            return
        running.add(message.id)
        most = max(most, len(running))
        await asyncio.sleep(0.005)
        running.remove(message.id)

    assert set(handled(handle, quick + 40).values()) == {DONE}
    assert most == 8


def test_what_a_handler_sets_in_its_context_stays_with_its_message() -> None:
    seen: list[tuple[str, str]] = []

    async def handle(message: Any) -> None:
        seen.append((message.id, current.get()))
        current.set(message.id)
        if int(message.id) % 3 == 0:
            await asyncio.sleep(0)
        assert current.get() == message.id

    assert set(handled(handle, 30).values()) == {DONE}
    assert {before for _, before in seen} == {"none"}


def test_others_have_their_turn_while_messages_are_handled() -> None:
    turns = 0

    async def handle(_: Any) -> None:
        end = time.perf_counter() + BURST_SECONDS / 2
        while time.perf_counter() < end:
            pass

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def both() -> None:
        other = asyncio.create_task(count_turns())
        await _handled(handle, 60, 8)
        other.cancel()

    asyncio.run(both())
    assert turns >= 10


@pytest.mark.parametrize("uncancels", [False, True])
def test_a_handler_that_cancels_its_own_task_concerns_no_other_message(uncancels: bool) -> None:
    async def handle(message: Any) -> None:
        task = asyncio.current_task()
        if message.id == "4":
            await asyncio.sleep(0)
        if message.id == "3" and task is not None:
            task.cancel()
            if uncancels:
                task.uncancel()

    assert set(handled(handle, 10, concurrency=1).values()) == {DONE}


def test_an_error_fails_its_own_message_alone() -> None:
    async def handle(message: Any) -> None:
        if int(message.id) % 2:
            raise (SystemExit if int(message.id) % 3 else asyncio.CancelledError)("no")

    outcomes = handled(handle, 12)
    assert {id for id, outcome in outcomes.items() if outcome is DONE} == {"0", "2", "4", "6", "8", "10"}
    assert {type(outcomes[id]) for id in "13579"} == {Failed}


def test_an_interrupt_ends_handlers_and_hands_back_what_has_not_begun() -> None:
    async def handle(_: Any) -> None:
        await asyncio.sleep(60)

    async def interrupted() -> dict[str, Any]:
        pool = Pool(lambda _: handle, 2, lambda _: True, lambda: None)
        pool.submit(messages(3))
        await asyncio.sleep(0.01)
        assert pool.interrupt()
        return await ended(pool, 3)

    assert asyncio.run(interrupted()) == {"0": INTERRUPTED, "1": INTERRUPTED, "2": RELEASED}


def _eager(events: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """As `asyncio.eager_task_factory` of Python 3.12: a task's first step runs at once."""

    @types.coroutine
    def rest(effect: Any) -> Any:
        yield effect
        return (yield from coroutine)

    try:
        effect = coroutine.send(None)
    except StopIteration:
        return asyncio.Task(asyncio.sleep(0), loop=events, **options)
    return asyncio.Task(rest(effect), loop=events, **options)


def test_no_more_handlers_run_than_may_if_the_programs_tasks_begin_at_once() -> None:
    running = most = 0

    async def handle(_: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def main() -> None:
        factory: Any = getattr(asyncio, "eager_task_factory", _eager)
        asyncio.get_running_loop().set_task_factory(factory)
        assert set((await _handled(handle, 40, 4)).values()) == {DONE}

    asyncio.run(main())
    assert most == 4
