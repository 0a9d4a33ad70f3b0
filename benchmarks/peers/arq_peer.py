# /// script
# requires-python = ">=3.11"
# dependencies = ["arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0", "uvloop==0.23.0"]
# ///
"""arq."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Coroutine
from typing import Any

import uvloop
from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker
from messages import Message
from peer import AsyncPeer
from protocol import main

SETTINGS: dict[str, dict[str, Any]] = {
    "throughput": {"max_jobs": 50, "poll_delay": 0.01},
    "latency": {"max_jobs": 10, "poll_delay": 0.001},
}


class ArqPeer(AsyncPeer):
    name = "arq"
    version = importlib.metadata.version("arq")
    throughput = (
        "max_jobs=50 (the default is 10), poll_delay=0.01 instead of 0.5: a poll takes no more than queue_read_limit "
        "jobs; keep_result=0; on uvloop, which was faster"
    )
    latency = "poll_delay=0.001 instead of 0.5, max_jobs=10, keep_result=0"
    note = "It needs redis-py 5. Its clock is rounded to the nearest ms, so that a job may come 0.5 ms early."
    no_bulk = "jobs are enqueued one by one"
    keeps = "keep_result=…"
    loop_factory = uvloop.new_event_loop

    async def connected(self, work: Coroutine[Any, Any, None]) -> None:
        self.pool = await create_pool(RedisSettings.from_dsn(self.url))
        await work
        await self.pool.aclose()

    async def send(self, message: Message) -> None:
        await self.pool.enqueue_job("handle", message.payload, _defer_until=message.at)

    def consume(self) -> None:
        self.run(self.connected(self._consume(SETTINGS[self.setting])))

    async def _consume(self, settings: dict[str, Any]) -> None:
        async def handle(_context: dict[str, Any], payload: str) -> str:
            self.tally.note(payload)
            return payload

        async def started(_context: dict[str, Any]) -> None:
            self.tally.ready()

        await Worker(
            [func(handle, name="handle")],
            redis_pool=self.pool,
            on_startup=started,
            handle_signals=False,
            keep_result=self.results,
            log_results=False,
            **settings,
        ).async_run()


if __name__ == "__main__":
    main(ArqPeer)
