"""Messages replaced while they run: never two with one key at the same time, and the last one is handled."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import pytest

from delayq import Consumer, Message, Queue, aio
from tests.harness.servers import RedisServer

KEYS = 20
OPTIONS: dict[str, Any] = {"lease": 300, "concurrency_per_key": 1, "concurrency_key": lambda message: message.id}


class Watch:
    """What runs, by id, and what was handled last."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most = 0
        self.last: dict[str, int] = {}
        self._lock = threading.Lock()

    def begin(self, message: Any) -> None:
        with self._lock:
            self.running[message.id] += 1
            self.most = max(self.most, self.running[message.id])

    def end(self, message: Any) -> None:
        with self._lock:
            self.running[message.id] -= 1
            self.last[message.id] = message.payload


def options(chance: random.Random, number: int) -> dict[str, Any]:
    return {"id": f"page-{number % KEYS}", "delay": chance.choice([0, 0, 0.002, 0.01]), "on_conflict": "replace"}


def check(watch: Watch, stats: Any, count: int) -> None:
    assert watch.most == 1
    assert watch.last == {f"page-{number % KEYS}": number for number in range(count - KEYS, count)}
    assert stats.sent + stats.replaced == count
    assert stats.replaced > count // 10
    assert (stats.inside, stats.missing) == (0, 0)


COUNTS = [600, pytest.param(10_000, marks=pytest.mark.full)]


@pytest.mark.parametrize("count", COUNTS)
def test_replaced_messages_never_run_beside_their_replacements(redis_server: RedisServer, count: int):
    watch, chance = Watch(), random.Random(11)

    def handle(message: Message) -> None:
        watch.begin(message)
        threading.Event().wait(chance.choice([0, 0.001, 0.01]))
        watch.end(message)

    with Queue("search", url=redis_server.url, **OPTIONS) as queue:
        consumers = [Consumer(queue, handle, concurrency=8, name=name) for name in ("one", "other")]
        for consumer in consumers:
            consumer.start()
        senders = [threading.Thread(target=send_part, args=(queue, part, count)) for part in range(4)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        for consumer in consumers:
            consumer.stop()
        while queue.stats().inside:  # until the delayed ones are due, and those that wait for their key
            Consumer(queue, handle, concurrency=8).drain()
        check(watch, queue.stats(), count)


def send_part(queue: Queue, part: int, count: int) -> None:
    """Send the versions of every fourth page, in order."""
    chance = random.Random(part)
    for number in range(part, count, 4):
        queue.send(number, **options(chance, number))


@pytest.mark.parametrize("count", COUNTS)
def test_replaced_messages_never_run_beside_their_replacements_in_the_async_api(redis_server: RedisServer, count: int):
    watch, chance = Watch(), random.Random(11)

    async def handle(message: Message) -> None:
        watch.begin(message)
        await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
        watch.end(message)

    async def main() -> Any:
        async with aio.Queue("search", url=redis_server.url, **OPTIONS) as queue:

            async def send_part(part: int) -> None:
                for number in range(part, count, 4):
                    await queue.send(number, **options(chance, number))

            consumers = [aio.Consumer(queue, handle, concurrency=8, name=name) for name in ("one", "other")]
            for consumer in consumers:
                await consumer.start()
            await asyncio.gather(*map(send_part, range(4)))
            for consumer in consumers:
                await consumer.stop()
            while (await queue.stats()).inside:
                await aio.Consumer(queue, handle, concurrency=8).drain()
            return await queue.stats()

    check(watch, asyncio.run(main()), count)
