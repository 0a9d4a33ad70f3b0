"""What belongs to an event loop: another one gets an error at once, and starts afresh once that loop has closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from delayq import InvalidInput
from delayq.aio import Consumer, Queue, Topic, TopicConsumer
from delayq.runtime.send_coalescer_async import SendCoalescer
from tests.harness.servers import RedisServer


class Used:
    """A queue, a topic and their consumers."""

    def __init__(self, url: str) -> None:
        self.queue, self.topic = Queue("jobs", url=url), Topic("news", url=url)
        self.consumer = Consumer(self.queue, print, name="worker")

    async def send_twice(self) -> None:
        await asyncio.gather(self.queue.send("x", delay=60), self.queue.send("y", delay=60))

    async def poll(self) -> None:
        await (await self.topic.group("all")).poll("a", wait=60)

    async def follow(self) -> None:
        await TopicConsumer(await self.topic.group("all"), print).run()

    async def stop(self) -> None:
        await self.consumer.stop()

    async def start(self) -> None:
        await self.consumer.start()

    async def close(self) -> None:
        await self.queue.close()
        await self.topic.close()


Call = Callable[[Used], Coroutine[Any, Any, object]]
CALLS: dict[str, Call] = {
    "send": lambda used: used.queue.send("x", delay=60),
    "send twice": Used.send_twice,
    "receive": lambda used: used.queue.receive(wait=60),
    "stats": lambda used: used.queue.stats(),
    "events": lambda used: used.queue.events.length(),
    "publish": lambda used: used.topic.publish("x"),
    "poll": Used.poll,
    "consume": lambda used: used.consumer.run(),
    "follow": Used.follow,
    "start": Used.start,
    "stop": Used.stop,
    "close queue": lambda used: used.queue.close(),
    "close topic": lambda used: used.topic.close(),
}


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.mark.parametrize("name", CALLS)
def test_call_on_a_second_event_loop_is_refused_at_once(name: str, url: str, threads: ThreadPoolExecutor):
    used = Used(url)

    async def first() -> None:
        await used.topic.publish("x")
        await used.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.gather(used.queue.receive(wait=60), used.poll())
        await used.send_twice()
        used.queue._coalescer._is_busy = True  # as while another task's message is on its way
        answer = await asyncio.wait_for(asyncio.wrap_future(threads.submit(asyncio.run, other())), 10)
        assert isinstance(answer, InvalidInput)
        assert "in use on another event loop" in str(answer)
        assert used.consumer.is_running
        used.queue._coalescer._is_busy = False
        await used.send_twice()
        await used.stop()
        await used.close()

    async def other() -> BaseException | None:
        called = asyncio.create_task(CALLS[name](used))
        await asyncio.wait({called}, timeout=5)
        return called.exception() if called.done() else None

    asyncio.run(first())


def test_messages_are_sent_after_an_event_loop_that_was_closed_within_a_send():
    sent: list[Any] = []
    hangs = True

    async def send(batch: Any) -> Any:
        if hangs:
            await asyncio.Event().wait()
        sent.extend(batch)
        return batch

    coalescer, loop = SendCoalescer(send), asyncio.new_event_loop()
    left = [loop.create_task(coalescer.send(name)) for name in ("a", "b")]  # type: ignore[arg-type]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    hangs = False

    async def again() -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(coalescer.send("c"), coalescer.send("d"))  # type: ignore[arg-type]
            await coalescer.close()

    asyncio.run(again())
    assert sent == ["c", "d"]
    for task in left:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()
