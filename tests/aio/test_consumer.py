"""What only the async consumer has: tasks, cancellation, signals, its end. The rest is in tests/contract."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Outgoing, backoff
from delayq.aio import Consumer, Message, Queue
from delayq.errors import InvalidInput
from delayq.transport.executor_async import MOST_TRIPS
from tests.aio.conftest import Run, on_both_loops, on_one_loop
from tests.harness.servers import RedisServer


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


async def becomes(condition: Callable[[], bool], seconds: float = 240) -> bool:
    """Wait until a condition holds. Return False if it does not within `seconds`, a limit that no test is about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.005)
    return True


async def nothing(_: Message) -> None:
    """Do nothing."""


def test_thousand_handlers_run_at_the_same_time(run: Run, url: str):
    async def main() -> None:
        running, all_here = 0, asyncio.Event()

        async def handle(_: Message) -> None:
            nonlocal running
            running += 1
            if running == 1500:
                all_here.set()
            await all_here.wait()

        async with Queue("jobs", url=url) as queue:
            await queue.send_many(Outgoing(n) for n in range(1500))
            assert await Consumer(queue, handle, concurrency=1500).drain() == 1500
            assert (await queue.stats()).acked == 1500

    run(main())


def test_no_more_handlers_run_than_the_concurrency(run: Run, url: str):
    async def main() -> None:
        running, most = 0, 0

        async def handle(_: Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

        async with Queue("jobs", url=url) as queue:
            await queue.send_many(Outgoing(n) for n in range(200))
            await Consumer(queue, handle, concurrency=7).drain()
            assert most == 7

    run(main())


def test_registered_handler_can_settle_its_message_itself(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:

            @queue.handler
            async def handle(message: Message) -> None:
                await message.reject("seen enough")

            await queue.send("x")
            assert await Consumer(queue).drain() == 1
            assert [info.reason for info in await queue.dead.list()] == ["seen enough"]

    run(main())


def test_handler_can_use_its_queue(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            outcomes = []

            async def handle(message: Message) -> None:
                outcomes.append(await queue.cancel(message.id))
                raise ValueError("fails after the cancel")

            await queue.send("x")
            assert await Consumer(queue, handle).drain() == 1
            stats = await queue.stats()
            assert (outcomes, stats.retry, stats.cancelled, stats.missing) == (["in_flight"], 0, 1, 0)

    run(main())


def test_plain_handlers_run_in_separate_threads(run: Run, url: str):
    async def main() -> set[str]:
        names: set[str] = set()
        barrier = threading.Barrier(4)

        def handle(_: Message) -> None:
            names.add(threading.current_thread().name)
            barrier.wait(120)

        async with Queue("jobs", url=url) as queue:
            await queue.send_many(Outgoing(n) for n in range(4))
            assert await Consumer(queue, handle, concurrency=4).drain() == 4
        return names

    assert len(run(main())) == 4


class AsyncCall:
    """An object whose call returns a coroutine."""

    async def __call__(self, _: Message) -> bool:
        await asyncio.sleep(0)
        return False


@on_one_loop
@pytest.mark.parametrize("handler", [AsyncCall(), functools.partial(AsyncCall.__call__, AsyncCall())])
def test_every_kind_of_async_callable_is_awaited(run: Run, url: str, handler: Any):
    async def main() -> None:
        async with Queue("jobs", url=url, max_retries=0) as queue:
            await queue.send("x")
            assert await Consumer(queue, handler).drain() == 1
            assert [info.error for info in await queue.dead.list()] == ["the handler returned False"]

    run(main())


@on_one_loop
def test_generator_function_is_refused(run: Run, url: str):
    def handle(_: Message) -> Any:
        yield

    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            with pytest.raises(InvalidInput, match="is a generator function"):
                queue.handler(handle)
            with pytest.raises(InvalidInput, match="is a generator function"):
                Consumer(queue, handle)

    run(main())


@pytest.mark.parametrize("shards", [1, 3])
def test_idle_consumer_hears_a_send(run: Run, url: str, shards: int):
    async def main() -> None:
        async with Queue("jobs", url=url, shards=shards) as queue:
            handled: list[Message] = []

            async def handle(message: Message) -> None:
                handled.append(message)

            consumer = Consumer(queue, handle)
            await consumer.start()
            for count in range(1, 6):
                await asyncio.sleep(0.05)
                await queue.send("x", delay=0.01)
                assert await becomes(lambda: len(handled) == count)  # noqa: B023  # called here
            assert all(message.handed_ms >= message.due_ms for message in handled)
            await consumer.stop()

    run(main())


def test_lease_is_renewed_while_the_handler_runs(
    run: Run, url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.runtime.lease_keeper.HEARTBEATS_PER_LEASE", 600)

    async def main() -> None:
        attempts, now = [], [1_000_000.0]

        async def handle(message: Message) -> None:
            attempts.append(message.attempt)
            now[0] += 40_000
            message.held_until -= 40
            unack = functools.partial(redis_client.zscore, "delayq:{jobs}:unack")
            assert await becomes(lambda: int(unack(message.id) or 0) == now[0] + 60_000)  # beside the receipt's mark
            now[0] += 40_000  # when the first lease has ended

        async with Queue("jobs", url=url, lease=60, clock=lambda: now[0]) as queue:
            await queue.send("x")
            await Consumer(queue, handle).drain()
            stats = await queue.stats()
            assert (attempts, stats.lease_lost, stats.acked) == ([1], 0, 1)

    run(main())


def test_stop_finishes_running_messages_and_hands_back_the_rest(run: Run, url: str):
    async def main() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def handle(_: Message) -> None:
            started.set()
            await go_on.wait()

        async with Queue("jobs", url=url) as queue:
            await queue.send_many(Outgoing(n) for n in range(50))
            consumer = Consumer(queue, handle, concurrency=3)
            await consumer.start()
            await started.wait()
            asyncio.get_running_loop().call_later(0.1, go_on.set)
            await consumer.stop()
            stats = await queue.stats()
            assert (stats.unack, stats.retry, stats.acked + stats.ready + stats.pending) == (0, 0, 50)
            assert consumer.handled == stats.acked >= 3
            assert all(info.attempts == 0 for info in await queue.peek("ready", limit=50))

    run(main())


def test_handler_that_outlasts_the_shutdown_timeout_is_cancelled_and_handed_back(run: Run, url: str):
    async def main() -> None:
        started, ends = asyncio.Event(), []

        async def handle(_: Message) -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                ends.append("cleaned up")

        async with Queue("jobs", url=url, max_retries=0) as queue:
            await queue.send("x", id="a")
            consumer = Consumer(queue, handle, shutdown_timeout=0.1)
            await consumer.start()
            await started.wait()
            await consumer.stop()
            info = await queue.get("a")
            assert info is not None
            assert (ends, info.state, info.attempts) == (["cleaned up"], "ready", 1)

    run(main())


@pytest.mark.parametrize("kind", ["single", "batch"])
def test_handler_that_swallows_the_cancellation_at_shutdown_is_handed_back(run: Run, url: str, kind: str):
    async def main() -> None:
        started = asyncio.Event()

        async def handle(_: object) -> None:
            started.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        async with Queue("jobs", url=url, backoff=backoff.fixed(30)) as queue:
            await queue.send("x", id="a")
            (queue.handler if kind == "single" else queue.batch_handler)(handle)
            consumer = Consumer(queue)
            await consumer.start()
            await started.wait()
            await consumer.stop(timeout=0)
            info = await queue.get("a")
            assert info is not None
            assert (info.state, info.attempts) == ("ready", 1)

    run(main())


@pytest.mark.parametrize("ends", ["shutdown", "time limit"])
@pytest.mark.parametrize("kind", ["single", "batch"])
def test_task_whose_driver_turns_a_cancel_into_its_own_error_is_not_dead(run: Run, url: str, kind: str, ends: str):
    async def main() -> None:
        started = asyncio.Event()

        async def work() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RuntimeError("the connection was closed") from None

        async def batch(_: list[Message]) -> None:
            """Do nothing."""

        async with Queue("jobs", url=url, backoff=backoff.fixed(30)) as queue:
            if kind == "batch":
                queue.batch_handler(batch)
            sent = await queue.task(retry_for=(ConnectionError, TimeoutError))(work).send()
            consumer = Consumer(queue, timeout=0.05 if ends == "time limit" else None)
            await consumer.start()
            await started.wait()
            if ends == "time limit":
                assert await becomes(lambda: consumer.failed == 1)
            await consumer.stop(timeout=0)
            info = await queue.get(sent.id)
            assert info is not None
            assert (info.state, info.attempts) == ("ready" if ends == "shutdown" else "retry", 1)

    run(main())


@pytest.mark.parametrize("handler", ["async", "plain"])
def test_run_cancelled_anywhere_keeps_no_lease_and_no_task(run: Run, url: str, handler: str):
    async def slow(_: Message) -> None:
        await asyncio.sleep(0.003)

    def quick(_: Message) -> None:
        """Do nothing."""

    async def main() -> None:
        before = asyncio.all_tasks()
        async with Queue("jobs", url=url, backoff=backoff.fixed(0), max_retries=1000) as queue:
            for turns in range(0, 200, 10):
                await queue.send_many(Outgoing(n) for n in range(5))
                task = asyncio.create_task(
                    Consumer(queue, slow if handler == "async" else quick, concurrency=2).run(burst=True)
                )
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                stats = await queue.stats()
                assert (stats.unack, stats.missing) == (0, 0)
                assert asyncio.all_tasks() == before

    run(main())


def test_task_cancelled_with_its_event_loop_keeps_no_lease(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url, backoff=backoff.fixed(0)) as queue:
            started = asyncio.Event()

            async def handle(_: Message) -> None:
                started.set()
                await asyncio.sleep(60)

            await queue.send_many(Outgoing(n) for n in range(3))
            await Consumer(queue, handle, concurrency=1).start()
            await started.wait()
            await asyncio.sleep(0.1)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:  # as asyncio.run does at its end
                task.cancel()
            await asyncio.wait(others)
            assert (await queue.stats()).unack == 0

    run(main())


@on_both_loops
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_run_cleanly_and_its_handler_is_restored(run: Run, url: str, number: signal.Signals):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:

            async def handle(_: Message) -> None:
                os.kill(os.getpid(), number)
                await asyncio.sleep(0.05)

            await queue.send("x")
            before = signal.getsignal(number)
            assert await Consumer(queue, handle).run() == 1
            assert signal.getsignal(number) == before
            assert (await queue.stats()).acked == 1

    run(main())


@on_both_loops
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_handlers_of_the_application_are_kept(run: Run, url: str, number: signal.Signals):
    async def main() -> None:
        events, signalled = asyncio.get_running_loop(), asyncio.Event()
        events.add_signal_handler(number, signalled.set)
        try:
            async with Queue("jobs", url=url) as queue:
                await Consumer(queue, nothing).drain()
            os.kill(os.getpid(), number)
            await signalled.wait()
        finally:
            assert events.remove_signal_handler(number)

    run(main())


@on_both_loops
def test_signal_handler_set_during_a_run_stays(run: Run, url: str):
    async def main() -> None:
        events, signalled = asyncio.get_running_loop(), asyncio.Event()
        async with Queue("jobs", url=url) as queue:

            async def handle(_: Message) -> None:
                events.add_signal_handler(signal.SIGTERM, signalled.set)

            await queue.send("x")
            await Consumer(queue, handle).drain()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await signalled.wait()
        finally:
            assert events.remove_signal_handler(signal.SIGTERM)

    run(main())


def test_error_that_ends_a_started_consumer_is_logged_at_once(run: Run, url: str, monkeypatch: pytest.MonkeyPatch):
    async def fail(*_: Any) -> int:
        raise RuntimeError("a defect")

    monkeypatch.setattr("delayq.runtime.driver_async.Driver.run", fail)

    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            consumer = Consumer(queue, nothing, name="me")
            with capture_logs() as lines:
                await consumer.start()
                assert await becomes(lambda: any(line["log_level"] == "error" for line in lines))
            (line,) = [line for line in lines if line["log_level"] == "error"]
            assert (line["event"], line["consumer"]) == ("consumer failed", "me")
            assert "a defect" in line["error"]
            with pytest.raises(RuntimeError, match="a defect"):
                await consumer.stop()

    run(main())


def test_stop_from_a_handler_does_not_wait_for_itself(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:

            async def handle(_: Message) -> None:
                await consumer.stop()

            consumer = Consumer(queue, handle)
            await queue.send("x")
            assert await consumer.run() == 1
            assert (await queue.stats()).acked == 1

    run(main())


def test_consumer_runs_once_at_a_time(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            consumer = Consumer(queue, nothing)
            await consumer.start()
            with pytest.raises(InvalidInput, match="is already running"):
                await consumer.run()
            await consumer.stop()
            assert await consumer.run(burst=True) == 0

    run(main())


def test_max_messages_ends_the_run(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.send_many(Outgoing(n) for n in range(100))
            assert await Consumer(queue, nothing, concurrency=4).run(max_messages=30) == 30
            stats = await queue.stats()
            assert (stats.acked, stats.inside, stats.unack) == (30, 70, 0)

    run(main())


def test_sync_and_async_consumers_handle_each_message_once(run: Run, url: str):
    async def main() -> None:
        handled: list[str] = []

        async def handle(message: Message) -> None:
            handled.append(message.id)

        async with Queue("jobs", url=url) as queue:
            consumers = [Consumer(queue, handle if n % 2 else lambda m: handled.append(m.id)) for n in range(4)]
            await queue.send_many(Outgoing(n) for n in range(2000))
            assert sum(await asyncio.gather(*(consumer.drain() for consumer in consumers))) == 2000
            assert len(handled) == len(set(handled)) == 2000

    run(main())


def test_consumer_resumes_after_the_server_was_killed(run: Run, own_server: RedisServer):
    async def main() -> None:
        handled: set[str] = set()

        async def handle(message: Message) -> None:
            handled.add(message.id)

        async with Queue("jobs", url=own_server.url, lease=2, backoff=backoff.fixed(0)) as queue:
            consumer = Consumer(queue, handle)
            await consumer.start()
            sents = await queue.send_many(Outgoing(n, delay=0.5) for n in range(100))
            own_server.kill()
            with capture_logs() as lines:  # the consumer notices
                assert await becomes(lambda: any("redis unavailable" in line["event"] for line in lines))
            own_server.start()
            assert await becomes(lambda: handled >= {sent.id for sent in sents})
            await consumer.stop()
            assert (await queue.stats()).missing == 0

    run(main())


def test_leases_are_renewed_however_many_calls_of_the_program_wait(run: Run, url: str):
    async def main() -> None:
        begun, blocked, renewed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            begun.set()
            await blocked.wait()
            held_until = message.held_until
            assert await becomes(lambda: message.held_until > held_until)
            renewed.set()

        async with Queue("jobs", url=url, lease=1) as queue:
            await queue.send("x")
            consumer = Consumer(queue, handle)
            await consumer.start()
            await asyncio.wait_for(begun.wait(), 60)
            trips = queue._executor._trips
            for _ in range(MOST_TRIPS):  # as 20,000 sends at once do
                await trips.acquire()
            blocked.set()
            await asyncio.wait_for(renewed.wait(), 60)
            for _ in range(MOST_TRIPS):
                trips.release()
            await consumer.stop()

    run(main())
