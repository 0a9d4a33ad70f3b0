"""Scripts are sent again, as texts, to a server that was lost, and to nodes of a cluster too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import redis

from delayq import Queue, aio
from delayq.protocol.command import Command, identity
from delayq.protocol.script import script
from delayq.transport import executor_async
from delayq.transport.executor import Executor
from tests.harness.servers import RedisServer

TOLD, KNOWN = [True, True], [False, False]


def trip(*, repeats: bool = True) -> list[Command[Any]]:
    return [Command(key, (1, key), identity, script("ring"), repeats=repeats) for key in ("{q}a", "{q}b")]


def texts(client: redis.Redis) -> int:
    """How many script texts the server has received since the last question."""
    info: Any = client.info("commandstats")
    client.config_resetstat()
    return int(info.get("cmdstat_eval", {}).get("calls", 0))


@pytest.mark.parametrize("repeats", [True, False])
def test_texts_are_sent_on_the_connection_after_a_closed_one(
    redis_server: RedisServer, redis_client: redis.Redis, repeats: bool
) -> None:
    """The closed connection is found before the trip if that must not run twice, otherwise by the trip itself."""
    with Queue("jobs", url=redis_server.url) as queue:
        for expected in (2, 0):
            texts(redis_client)
            queue._executor.run(trip(repeats=repeats))
            assert texts(redis_client) == expected
        redis_client.client_kill_filter(_type="normal", skipme=True)
        queue._executor.run(trip(repeats=repeats))
        assert texts(redis_client) == 2


def test_texts_are_sent_on_the_async_connection_after_a_lost_one(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = executor_async.Executor._talk
    losses = [redis.ConnectionError("Connection closed by server.")]

    async def lossy(*args: Any) -> list[Any]:
        if losses:
            raise losses.pop()
        return await talk(*args)

    async def lose() -> None:
        async with aio.Queue("jobs", url=redis_server.url) as queue:
            for expected in (2, 0):
                await queue._executor.connected()
                texts(redis_client)
                await queue._executor.run(trip())
                assert texts(redis_client) == expected
            monkeypatch.setattr(executor_async.Executor, "_talk", lossy)
            await queue._executor.run(trip())
            assert (texts(redis_client), losses) == (2, [])

    asyncio.run(lose())


class Nodes:
    """A cluster that records which calls of a trip carried their texts."""

    def __init__(self) -> None:
        self.seen: list[list[bool]] = []
        self.replies: list[Any] = [0, 0]

    def run(self, calls: Sequence[Command[Any]], _whole: bool, _repeat: bool, _may_run_twice: bool) -> list[Any]:
        self.seen.append([call.whole for call in calls])
        return self.replies


class AsyncNodes(Nodes):
    async def run(self, calls: Sequence[Command[Any]], _whole: bool, _repeat: bool, _may_run_twice: bool) -> list[Any]:  # type: ignore[override]
        return super().run(calls, _whole, _repeat, _may_run_twice)


def test_texts_are_sent_to_a_cluster_again_after_a_node_was_lost() -> None:
    connection, nodes = Executor(object, False, None), Nodes()  # type: ignore[arg-type]
    connection._client, connection._cluster = object(), nodes  # type: ignore[assignment]
    for replies in ([0, 0], [0, 0], [0, redis.ConnectionError("gone")], [0, 0]):
        nodes.replies = replies
        connection.run(trip())
    assert nodes.seen == [TOLD, KNOWN, KNOWN, TOLD]


def test_texts_are_sent_to_a_cluster_again_after_a_node_was_lost_on_the_async_api() -> None:
    async def lose() -> None:
        connection, nodes = executor_async.Executor(object, False, None), AsyncNodes()  # type: ignore[arg-type]
        connection._client, connection._cluster = object(), nodes  # type: ignore[assignment]
        connection._loop = asyncio.get_running_loop()
        for replies in ([0, 0], [0, 0], [0, redis.ConnectionError("gone")], [0, 0]):
            nodes.replies = replies
            await connection.run(trip())
        assert nodes.seen == [TOLD, KNOWN, KNOWN, TOLD]

    asyncio.run(lose())
