"""delayq.aio compared with the bare scripts: sends from many tasks, and a consumer with very many handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from benchmarks.paired.consumer import DrainTally
from benchmarks.paired.rates import HOUR, Bench
from benchmarks.paired.samples import PairedRates, alternate
from delayq.aio import Consumer, Message, Queue

IN_FLIGHT = 100
HANDLERS = 1000
WAIT_SECONDS = 0.01  # of a handler that waits

TITLES = {
    "send_one": "send one by one, awaited",
    "send_tasks": f"send from {IN_FLIGHT} tasks",
    "drain": f"drain, {HANDLERS} handlers at a time",
    "drain_waiting": f"drain, {HANDLERS} handlers that wait for {WAIT_SECONDS * 1000:.0f} ms",
}

Work = Callable[[Queue, Bench, int], Coroutine[Any, Any, float]]


def rates(place: Bench, url: str, messages: int, runs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return all rates, each measured in turn with the bare scripts, which use one connection and no handler."""
    found = {}
    for name, (work, filled) in MEASURES.items():
        paired = _pair(place, url, work, messages, runs, filled)
        found[name] = paired.as_record()
        say(f"{TITLES[name]}: {found[name]['per_second']['median']:,.0f}/s, {paired.ratio:.2f} of the bare scripts")
    return found


def _pair(place: Bench, url: str, work: Work, count: int, runs: int, filled: bool) -> PairedRates:
    def rate(measure: Callable[[int], float]) -> float:
        if filled:
            place.due(count)
        seconds = measure(count)
        place.clear()
        return count / seconds

    def own(count: int) -> float:
        return asyncio.run(_with_queue(place, url, work, count))

    return alternate(lambda: rate(own), lambda: rate(place.bare.drain if filled else place.bare.send_one), runs)


async def _with_queue(place: Bench, url: str, work: Work, count: int) -> float:
    async with Queue(place.queue.name, url=url, prefix=place.queue._context.prefix) as queue:
        await queue.stats()  # connects
        seconds = await work(queue, place, count)
        stats = await queue.stats()
    if count not in (stats.sent, stats.acked):
        raise RuntimeError(f"{count} messages were expected: {stats}")
    return seconds


async def _send(queue: Queue, place: Bench, count: int, tasks: int) -> float:
    async def work(part: int) -> None:
        for _ in range(part):
            await queue.send(place.payload, delay=HOUR)

    began = perf_counter()
    await asyncio.gather(*(work(count // tasks + (number < count % tasks)) for number in range(tasks)))
    return perf_counter() - began


async def _send_one(queue: Queue, place: Bench, count: int) -> float:
    return await _send(queue, place, count, 1)


async def _send_tasks(queue: Queue, place: Bench, count: int) -> float:
    return await _send(queue, place, count, IN_FLIGHT)


async def _drain(queue: Queue, _: Bench, count: int, wait: float = 0.0) -> float:
    tally: Any = DrainTally()

    async def handle(message: Message) -> None:
        if wait:
            await asyncio.sleep(wait)
        tally(message)

    consumer = Consumer(queue, handle, concurrency=HANDLERS)
    drained = await consumer.drain()
    if drained != count:
        raise RuntimeError(f"{count} messages were due, {drained} came")
    seconds: float = tally.result(0.0, 0.0).seconds
    return seconds


async def _drain_waiting(queue: Queue, place: Bench, count: int) -> float:
    return await _drain(queue, place, count, WAIT_SECONDS)


MEASURES: dict[str, tuple[Work, bool]] = {
    "send_one": (_send_one, False),
    "send_tasks": (_send_tasks, False),
    "drain": (_drain, True),
    "drain_waiting": (_drain_waiting, True),
}
"""What to measure, and whether messages must be due before."""
