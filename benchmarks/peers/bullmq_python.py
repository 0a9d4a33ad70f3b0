# /// script
# requires-python = ">=3.11"
# dependencies = ["bullmq==3.4.4", "redis==8.1.0", "hiredis==3.5.0", "uvloop==0.23.0"]
# ///
"""BullMQ's client for Python."""

from __future__ import annotations

import asyncio
import importlib.metadata
import time
from collections.abc import Coroutine
from typing import Any

import uvloop
from bullmq import Job, Queue, Worker
from messages import Message
from peer import AsyncPeer
from protocol import main

CONCURRENCY = {"throughput": 16, "latency": 100}


class BullmqPython(AsyncPeer):
    name = "BullMQ (Python)"
    version = importlib.metadata.version("bullmq")
    throughput = (
        "concurrency=16, which was the fastest of 1 to 300 (docs: 100 to 300 is standard for jobs that wait), "
        "removeOnComplete, addBulk of 500 (docs: 100 to 500 small jobs); on uvloop"
    )
    latency = "concurrency=100, with which it polls; with less, it waits for the next delayed job in whole seconds"
    note = "Completed jobs leave an entry in a stream of events, which is trimmed to about 10,000."
    loop_factory = uvloop.new_event_loop

    async def connected(self, work: Coroutine[Any, Any, None]) -> None:
        self.queue = Queue("bench", {"connection": self.url})
        await work
        await self.queue.close()

    async def send(self, message: Message) -> None:
        await self.queue.add("handle", {"payload": message.payload}, _options(message))

    async def send_batch(self, batch: list[Message]) -> None:
        await self.queue.addBulk(
            [{"name": "handle", "data": {"payload": each.payload}, "opts": _options(each)} for each in batch]
        )

    def consume(self) -> None:
        self.run(self._consume(CONCURRENCY[self.setting]))

    async def _consume(self, concurrency: int) -> None:
        async def handle(job: Job, _token: str) -> None:
            self.tally.note(job.data["payload"])

        worker = Worker("bench", handle, {"connection": self.url, "concurrency": concurrency, "autorun": False})
        running = asyncio.create_task(worker.run())
        self.tally.ready()
        await running


def _options(message: Message) -> dict[str, Any]:
    now = round(time.time() * 1000)
    return {"timestamp": now, "delay": max(message.due_ms - now, 1), "removeOnComplete": True}


if __name__ == "__main__":
    main(BullmqPython)
