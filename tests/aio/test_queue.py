"""What only the async queue has: many tasks at once, cancellation, its event loop. The rest is in tests/contract."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis import asyncio as async_redis

from delayq import Outgoing, errors
from delayq import Queue as SyncQueue
from delayq.aio import Queue
from tests.aio.conftest import Run, on_one_loop
from tests.harness.servers import RedisServer


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def other(url: str) -> Iterator[SyncQueue]:
    """A sync queue with the same name."""
    with SyncQueue("jobs", url=url) as queue:
        yield queue


def test_sync_and_async_queues_receive_each_others_messages(run: Run, url: str, other: SyncQueue):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            other.send({"from": "sync"})
            (message,) = await queue.receive()
            assert message.payload == {"from": "sync"}
            await message.ack()
            await queue.send({"from": "async"})

    run(main())
    (message,) = other.receive()
    assert message.payload == {"from": "async"}
    message.ack()
    assert other.stats().inside == 0


def test_thousand_tasks_share_few_connections(run: Run, url: str, redis_client: redis.Redis):
    async def main() -> int:
        async with Queue("jobs", url=url) as queue:
            await asyncio.gather(*(queue.send(n, id=str(n)) for n in range(1000)))
            await asyncio.gather(*(queue.get(str(n)) for n in range(1000)))
            return len(redis_client.client_list())

    assert run(main()) <= 40


@on_one_loop
def test_invalid_message_among_those_sent_together_fails_alone(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url, max_payload=100) as queue:
            sends = [queue.send("x" * (200 if n == 50 else 1)) for n in range(100)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(each) for each in results if isinstance(each, Exception)] == [errors.PayloadTooLarge]
            assert (await queue.stats()).sent == 99

    run(main())


def test_cancelled_send_cancels_no_others(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.send("first", id="first")
            tasks = [asyncio.create_task(queue.send(n, id=str(n))) for n in range(100)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [each.id for each in results[1::2] if not isinstance(each, BaseException)] == [
                str(n) for n in range(1, 100, 2)
            ]
            assert (await queue.stats()).missing == 0

    run(main())


def test_any_error_reaches_all_sends_of_the_batch(run: Run, url: str, monkeypatch: pytest.MonkeyPatch):
    async def fail(*_: Any) -> Any:
        await asyncio.sleep(0)
        raise RuntimeError("what a client of one's own says")

    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.stats()
            monkeypatch.setattr(queue._executor, "run", fail)
            results = await asyncio.gather(*(queue.send(n) for n in range(3)), return_exceptions=True)
            assert [type(each) for each in results] == [RuntimeError] * 3

    run(main())


@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.full)])
def test_receive_cancelled_anywhere_keeps_no_message(run: Run, url: str, shards: int):
    async def main() -> tuple[int, int]:
        cancelled = came = 0
        async with Queue("jobs", url=url, shards=shards) as queue:
            await queue.send_many([Outgoing(n, id=str(n)) for n in range(3)])
            for turns in range(0, 400, 5):
                task = asyncio.create_task(queue.receive(2, wait=1))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    messages = await task
                except asyncio.CancelledError:
                    cancelled += 1
                else:
                    came += 1
                    for message in messages:
                        await message.release()
                stats = await queue.stats()
                assert (stats.unack, stats.inside, stats.missing) == (0, 3, 0)
        return cancelled, came

    cancelled, _ = run(main())
    assert cancelled > 0


def test_receive_cancelled_while_it_waits_leaves_the_bell_to_others(run: Run, url: str):
    async def main() -> None:
        async with Queue("jobs", url=url) as queue, Queue("jobs", url=url) as second:
            waiting = asyncio.create_task(queue.receive(wait=30))
            patient = asyncio.create_task(second.receive(wait=30))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await queue.send("x")
            (message,) = await patient
            await message.ack()

    run(main())


def test_many_receivers_of_one_queue_get_each_message_once(run: Run, url: str):
    async def main() -> list[Any]:
        async with Queue("jobs", url=url) as queue:
            received: list[Any] = []

            async def receiver() -> None:
                while len(received) < 1000:
                    messages = await queue.receive(7, wait=0.2)
                    received.extend(message.payload for message in messages)
                    assert all(await queue.ack(messages))

            async with asyncio.TaskGroup() as receivers:
                for _ in range(20):
                    receivers.create_task(receiver())
                await queue.send_many(Outgoing(n) for n in range(1000))
            return received

    assert sorted(run(main())) == list(range(1000))


@on_one_loop
def test_passed_in_client_stays_open(run: Run, url: str):
    async def main() -> None:
        async with async_redis.from_url(url) as client:
            async with Queue("jobs", redis=client) as queue:
                await queue.send("x")
                assert len(await queue.receive(wait=0.1)) == 1
            assert await client.ping()

    run(main())


def test_sync_client_is_refused(redis_client: redis.Redis):
    with pytest.raises(errors.InvalidInput, match=r"not a client of redis\.asyncio"):
        Queue("jobs", redis=redis_client)  # type: ignore[arg-type]


@on_one_loop
def test_asyncio_client_is_refused_by_the_sync_api(run: Run, url: str):
    client = async_redis.from_url(url)
    with pytest.raises(errors.InvalidInput, match=r"use it with delayq\.aio"):
        SyncQueue("jobs", redis=client)  # type: ignore[arg-type]
    run(client.aclose())


def test_module_level_queue_works_on_one_event_loop_after_another(url: str):
    queue = Queue("jobs", url=url)

    async def main(n: int) -> int:
        async with queue:
            await queue.send(n)
            return (await queue.stats()).sent

    assert [asyncio.run(main(n)) for n in range(3)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_queue_left_open_can_wait_on_the_next_event_loop(url: str, other: SyncQueue):
    queue = Queue("jobs", url=url)

    async def receive(queue: Queue) -> list[Any]:
        received = asyncio.create_task(queue.receive(wait=10))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(other.send, "x")
        return [message.payload for message in await received]

    assert [asyncio.run(receive(queue)) for _ in range(3)] == [["x"]] * 3
    del queue
    for _ in range(2):  # within the warning filter: its sockets died with their event loops, which are collected first
        gc.collect()


def test_queue_in_use_on_another_event_loop_is_refused(url: str):
    queue = Queue("jobs", url=url)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(queue.send("x"))
        with pytest.raises(errors.InvalidInput, match="in use on another event loop"):
            second.run(queue.send("y"))
        first.run(queue.close())
        second.run(queue.send("y"))
        second.run(queue.close())


@on_one_loop
def test_embedded_store_is_the_default(run: Run, tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DELAYQ_HOME", str(tmp_path / "store"))

    async def main() -> None:
        async with Queue("jobs") as queue:
            await queue.send("x")
            with SyncQueue("jobs") as other:
                assert other.stats().sent == 1

    run(main())


def test_unavailable_server_gives_a_named_error(run: Run, tmp_path: Any):
    async def main() -> None:
        async with Queue("jobs", url=f"unix://{tmp_path}/none") as queue:
            with pytest.raises(errors.ServerUnreachable):
                await queue.send("x")

    run(main())


def test_queue_survives_a_restart_of_its_server(run: Run, own_server: RedisServer):
    async def main() -> None:
        async with Queue("jobs", url=own_server.url) as queue:
            await queue.send("x", id="a")
            own_server.kill()
            own_server.start()
            info = await queue.get("a")
            assert info is not None
            (message,) = await queue.receive(wait=5)
            await message.ack()

    run(main())


def test_purge_and_requeue_report_the_messages_of_each_step(run: Run, url: str):
    steps: list[int] = []

    async def main() -> None:
        async with Queue("jobs", url=url) as queue:
            await queue.send_many([Outgoing(None, id=f"m{number}", delay=60) for number in range(600)])
            for number in range(2):
                await queue.dead.bury(f"m{number}")
            assert await queue.dead.requeue(["m0"], progress=steps.append) == 1
            assert await queue.dead.purge(progress=steps.append) == 1
            assert await queue.purge("pending", progress=steps.append) == 599

    run(main())
    assert steps == [1, 1, 500, 99]


def test_purge_of_several_states_leaves_what_comes_meanwhile(run: Run, url: str):
    """A user may have confirmed the numbers."""
    steps: list[int] = []

    async def main() -> None:
        async with Queue("jobs", url=url) as queue, Queue("jobs", url=url) as other:
            await queue.send_many([Outgoing(None, id=name, delay=60) for name in "ab"])
            await queue.dead.bury("a")
            with SyncQueue("jobs", url=url) as beside:

                def note(count: int) -> None:
                    steps.append(count)
                    beside.send(None, id=f"late {len(steps)}", delay=60)

                assert await queue.purge(["dead", "pending"], progress=note) == 2
            assert await other.get("b") is None
            assert (await other.stats()).pending == 2

    run(main())
    assert steps == [1, 1]
