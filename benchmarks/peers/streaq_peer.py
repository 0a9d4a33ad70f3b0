# /// script
# requires-python = ">=3.11"
# dependencies = ["streaq==7.2.0", "coredis==6.9.0", "hiredis==3.5.0", "uvloop==0.23.0"]
# ///
"""streaQ."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Coroutine
from typing import Any

import uvloop
from messages import Message
from peer import AsyncPeer, Run
from protocol import main
from streaq import Worker


class StreaqPeer(AsyncPeer):
    name = "streaQ"
    version = importlib.metadata.version("streaq")
    throughput = (
        "concurrency=16, the default (8 to 64 made no difference), prefetch=100; tasks silent, ttl=0: no results are "
        "kept; enqueue_many of 500; on uvloop, which was faster"
    )
    latency = "the same: it looks for due tasks every 0.5 s, which cannot be changed"
    note = "It needs Redis 7: its scripts are functions."
    keeps = "ttl=…"
    loop_factory = uvloop.new_event_loop

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.worker = Worker(run.url, concurrency=16, prefetch=100, handle_signals=False)

        @self.worker.task(name="handle", silent=True, ttl=run.results)
        async def handle(payload: str) -> str:
            self.tally.note(payload)
            return payload

        self.task = handle

    async def connected(self, work: Coroutine[Any, Any, None]) -> None:
        async with self.worker:
            await work

    async def send(self, message: Message) -> None:
        await self.task.enqueue(message.payload).start(schedule=message.at)

    async def send_batch(self, batch: list[Message]) -> None:
        await self.worker.enqueue_many([self.task.enqueue(each.payload).start(schedule=each.at) for each in batch])

    def consume(self) -> None:
        self.tally.ready()
        self.run(self.worker.run_async())


if __name__ == "__main__":
    main(StreaqPeer)
