"""Pools and connections of redis.asyncio that survive a cancellation at any point, like `pool`."""

from __future__ import annotations

from typing import Any

from redis import asyncio as redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool

from delayq.transport import redis_py
from delayq.transport.clients import REPEATS
from delayq.transport.fast_stream import stream_of
from delayq.transport.pool import WholePool, is_interrupted, note_lent


class Pool(WholePool, redis.ConnectionPool):
    """Like redis-py's, but as `WholePool` says."""

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """Lend a connection: one that is in order, if there is one, without redis-py's locks, checks and counters.

        Before calls that must not run twice, a look at its socket shows whether the server has closed it.
        """
        idle: list[Any] = self._available_connections
        while idle and (fast := stream_of(idle[-1])) is not None:
            connection = idle.pop()
            if REPEATS.get() or fast.is_quiet:
                self._in_use_connections.add(connection)
                connection.is_at_hand = True
                break
            idle.insert(0, connection)
            await connection.disconnect(nowait=True)
        else:
            connection = await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        note_lent(connection)
        return connection

    async def release(self, connection: Any) -> None:
        """Take a connection back; one that is not known to be whole is closed, and connects again when it is lent."""
        is_at_hand, connection.is_at_hand = getattr(connection, "is_at_hand", False), False
        if is_interrupted(connection):
            await connection.disconnect(nowait=True)
        if is_at_hand and connection.is_connected and not redis_py.should_reconnect(connection):
            self._in_use_connections.remove(connection)
            self._available_connections.append(connection)
        else:
            await super().release(connection)


class SentinelPool(Pool, SentinelConnectionPool):
    """The pool of a client behind sentinels."""


def guard_cluster(client: RedisCluster) -> RedisCluster:
    """Make a connection to a node of a cluster that is cancelled while it connects start again."""
    settings = client.nodes_manager.connection_kwargs
    kind: Any = _guarded(settings.get("connection_class", redis.Connection))
    settings["connection_class"] = kind
    for node in client.nodes_manager.startup_nodes.values():
        node.connection_class = kind
    return client


def _guarded(kind: Any) -> Any:
    class NodeConnection(kind):  # type: ignore[misc]
        async def connect(self) -> None:
            await _whole(self, super().connect())

        async def connect_check_health(self, *args: Any, **options: Any) -> None:
            await _whole(self, super().connect_check_health(*args, **options))

    return NodeConnection


async def _whole(connection: Any, connecting: Any) -> None:
    try:
        await connecting
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
