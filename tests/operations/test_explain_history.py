"""The ledger on a real server: a long one is read in parts, and the resources for it are released at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis import asyncio as async_redis

from delayq import Queue, aio
from delayq.model.units import from_ms
from delayq.protocol.replies import LedgerPage
from tests.harness.servers import RedisServer

AT = 1_700_000_000_000
SIZE = 100_000
OURS = (0, 1, 499, 500, 501, 77_777, SIZE - 1)
FILL = """
local ours = {}
for i = 3, #ARGV do ours[ARGV[i]] = true end
for number = 0, ARGV[1] - 1 do
  local at = string.format('%.0f', ARGV[2] + number)
  local id = ours[tostring(number)] and 'a' or 'other-' .. number % 1000
  redis.call('XADD', KEYS[1], at .. '-0', 'id', id, 'event', 'sent', 'at', at, 'attempt', '', 'due', at, 'late', '',
    'consumer', '', 'reason', '')
end
"""


@pytest.mark.full
def test_ledger_of_100_000_entries_is_read_in_calls_of_500(
    any_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue("jobs", url=any_server.url) as queue, any_server.client() as client:
        admin: Any = client
        queue.send("x", delay=60)
        key = queue._context.shards[0].keys.events
        admin.eval(FILL, 1, key, SIZE, AT, *OURS)
        assert admin.xlen(key) == SIZE
        looks: list[tuple[int, LedgerPage]] = []
        run = queue._executor.run

        def note(calls: Sequence[Any], repeat: bool = True) -> Any:
            (result,) = run(calls, repeat)
            looks.append((int(calls[0].args[-1]), result))
            return [result]

        monkeypatch.setattr(queue._executor, "run", note)
        admin.config_resetstat()
        events = queue.history("a")
        assert [event.at for event in events] == [from_ms(AT + number) for number in OURS]
        assert {limit for limit, _ in looks} == {500}
        assert sum(len(looked.entries) for _, looked in looks) == len(OURS)
        assert len(looks) == SIZE // 500 + 1  # the last call finds that nothing is left
        # each call first looks at a few entries, whether they are packed; the last one finds none
        assert admin.info("commandstats")["cmdstat_xrevrange"]["calls"] == 2 * len(looks) - 1


def test_closed_queue_releases_its_ledger_connection(redis_server: RedisServer) -> None:
    with redis_server.client(max_connections=2) as client:
        queue = Queue("jobs", redis=client)
        assert queue.events.group("audit").poll("a", wait=0.01) == []
        queue.close()
        taken = [client.connection_pool.get_connection() for _ in range(2)]
        for connection in taken:
            client.connection_pool.release(connection)


def test_closed_async_queue_releases_it_too(redis_server: RedisServer) -> None:
    async def close() -> None:
        async with async_redis.from_url(redis_server.url, max_connections=2) as client:
            queue = aio.Queue("jobs", redis=client)
            group = await queue.events.group("audit")
            assert await group.poll("a", wait=0.01) == []
            await queue.close()
            taken = [await client.connection_pool.get_connection() for _ in range(2)]
            for connection in taken:
                await client.connection_pool.release(connection)

    asyncio.run(close())
