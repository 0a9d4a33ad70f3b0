"""What only async topics have."""

from __future__ import annotations

import asyncio

from delayq import aio
from delayq.errors import ServerError
from tests.aio.conftest import Run
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def test_topic_closed_during_a_wait_keeps_no_connection(run: Run, redis_server: RedisServer):
    def blocked() -> int:
        with redis_server.client() as client:
            return sum(each["cmd"] == "xread" for each in client.client_list())

    async def wait_for(count: int) -> None:
        assert await asyncio.to_thread(eventually, lambda: blocked() == count)

    async def main() -> list[object]:
        topic = aio.Topic("orders", url=redis_server.url)
        group = await topic.group("billing")
        waiting = [asyncio.create_task(group.poll(name, wait=30)) for name in ("a", "b")]
        await wait_for(2)
        await topic.close()
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        await wait_for(0)
        return [ended, list(topic._waits._idle)]  # the next wait would take a dead connection

    ended, kept = run(main())
    assert kept == []
    assert all(isinstance(each, asyncio.CancelledError | ServerError) for each in ended)
