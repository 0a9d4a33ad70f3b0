"""What works the same in all supported versions of redis-py."""

from __future__ import annotations

import asyncio
import importlib.metadata
import socket
import types
from collections import deque
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import redis
import uvloop
from redis.asyncio.cluster import ClusterNode

from delayq import Queue
from delayq.transport import clients, clients_async, redis_py


@pytest.mark.skipif((7, 2) <= redis.VERSION < (7, 4, 1), reason="these versions read it for each connection")
def test_connections_are_made_without_reading_the_version_of_redis_py_from_its_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.metadata.version", Mock(side_effect=AssertionError("read")))
    for made in (clients, clients_async):
        for client in (made.unix("/nowhere", {}), made.sentinel([("127.0.0.1", 1)], "main", {}, {})):
            client.connection_pool.make_connection()
    clients_async.cluster([("127.0.0.1", 1)], {})


@pytest.mark.parametrize("name", ["can_read", "can_read_destructive"])
def test_pending_reply_is_checked_by_the_name_that_redis_py_knows(name: str) -> None:
    connection: Any = Mock(spec=[name], **{name: AsyncMock(return_value=True)})
    assert asyncio.run(redis_py.can_read(connection)) is True


def test_node_gets_its_connection_back_with_or_without_a_method_for_it() -> None:
    old: Any = Mock(spec=["_free"], _free=deque())
    redis_py.give_back(old, "connection")
    assert list(old._free) == ["connection"]
    new: Any = Mock(spec=["release"])
    redis_py.give_back(new, "connection")
    new.release.assert_called_once_with("connection")


def test_idle_connections_of_a_node_are_closed() -> None:
    idle: Any = [Mock(disconnect=AsyncMock()) for _ in range(2)]
    node: Any = Mock(spec=["_free"], _free=deque(idle))
    asyncio.run(redis_py.close_idle(node))
    for each in idle:
        each.disconnect.assert_awaited_once_with()
    assert list(node._free) == idle


@pytest.mark.parametrize("turns", range(6))
def test_connection_in_use_stays_open_while_idle_ones_are_closed(turns: int) -> None:
    class Connection:
        is_connected = True

        async def disconnect(self) -> None:
            await asyncio.sleep(0)
            self.is_connected = False

        def should_reconnect(self) -> bool:
            return False

    async def lent() -> tuple[Any, bool]:
        closing = asyncio.create_task(redis_py.close_idle(node))
        for _ in range(turns):
            await asyncio.sleep(0)
        connection = node.acquire_connection()
        was_connected = connection.is_connected
        await closing
        return connection, was_connected

    node: Any = ClusterNode("localhost", 1)
    node._free.extend(Connection() for _ in range(3))
    connection, was_connected = asyncio.run(lent())
    assert connection.is_connected == was_connected
    assert not any(idle.is_connected for idle in node._free)
    assert len(node._free) == 2


def test_users_client_works_without_metadata_of_redis_py(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    """As in a program that is one file."""

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    redis_py.import_late_parts.cache_clear()
    Queue("jobs", redis=redis_client).send("x")
    assert redis_py.import_late_parts.cache_info().misses == 1


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_reply_that_a_busy_event_loop_has_not_read_yet_has_come(new_loop: Callable[[], Any]) -> None:
    """Otherwise a node of a cluster that has answered would seem to be silent."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        connection = types.SimpleNamespace(_reader=reader, _writer=writer)
        found = [redis_py.has_unread(connection)]
        theirs.send(b"+OK\r\n")
        found.append(redis_py.has_unread(connection))
        await asyncio.sleep(0.1)  # now the event loop has read it, but nobody has taken it
        found.append(redis_py.has_unread(connection))
        await reader.readline()
        found.append(redis_py.has_unread(connection))
        theirs.close()
        found.append(redis_py.has_unread(connection))
        writer.close()
        await asyncio.sleep(0)
        found.append(redis_py.has_unread(connection))
        assert found == [False, True, True, False, True, False]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
