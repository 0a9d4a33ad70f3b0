# /// script
# requires-python = ">=3.11"
# dependencies = ["saq[redis]==0.26.4", "redis==7.4.1", "hiredis==3.5.0", "typing_extensions==4.16.0", "uvloop==0.23.0"]
# ///
"""SAQ on Redis."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Coroutine
from typing import Any

import uvloop
from messages import Message
from peer import AsyncPeer
from protocol import main
from saq import Queue, Worker

CONCURRENCY = {"throughput": 50, "latency": 10}


class SaqPeer(AsyncPeer):
    name = "SAQ"
    version = importlib.metadata.version("saq")
    throughput = (
        "concurrency=50 (the default is 10; none of 4 to 100 was faster), ttl=-1, so no results are kept; on uvloop"
    )
    latency = (
        "concurrency=10, timers={'schedule': 1}: it looks for due jobs once a second, which is the default and "
        "the shortest interval possible, because the timer is in whole seconds"
    )
    note = "Jobs that were taken but not yet marked as active may be swept when a worker starts; it logs them."
    no_bulk = "jobs are enqueued one by one; map and apply loop over them, and wait for results"
    loop_factory = uvloop.new_event_loop

    async def connected(self, work: Coroutine[Any, Any, None]) -> None:
        self.queue = Queue.from_url(self.url, name="bench")
        await self.queue.connect()
        await work
        await self.queue.disconnect()

    async def send(self, message: Message) -> None:
        await self.queue.enqueue("handle", payload=message.payload, scheduled=message.due, ttl=-1)

    def consume(self) -> None:
        self.run(self.connected(self._consume(CONCURRENCY[self.setting])))

    async def _consume(self, concurrency: int) -> None:
        async def handle(_context: dict[str, Any], *, payload: str) -> None:
            self.tally.note(payload)

        async def started(_context: dict[str, Any]) -> None:
            self.tally.ready()

        functions = [("handle", handle)]
        await Worker(self.queue, functions, concurrency=concurrency, timers={"schedule": 1}, startup=started).start()


if __name__ == "__main__":
    main(SaqPeer)
