"""Differences between versions of redis-py; delayq works with 5.3.1 and newer."""

from __future__ import annotations

import select
import socket
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from typing import Any

import redis

from delayq.late_import import late_import

DRIVER_INFO: dict[str, Any] = {}
if redis.VERSION >= (7, 4, 1):  # the first whose clients all accept it
    from redis.driver_info import DriverInfo

    # Without it, redis-py reads its version from a file for each connection, which takes longer than connecting.
    DRIVER_INFO["driver_info"] = DriverInfo(lib_version=redis.__version__)


@cache
def import_late_parts() -> None:
    """Import what redis-py imports with its first connection; a process forked meanwhile would wait for it forever."""
    with late_import:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        with suppress(PackageNotFoundError):  # of a bundle; redis-py can do without
            version("redis")


def is_connected(connection: Any) -> bool:
    """Return whether a blocking connection is open."""
    return getattr(connection, "_sock", None) is not None


def fileno(connection: Any) -> int:
    """Return the descriptor of a blocking connection's socket; -1 if there is none, as in a fake server."""
    sock = getattr(connection, "_sock", None)
    return sock.fileno() if isinstance(sock, socket.socket) else -1


def readable(descriptors: Collection[int], seconds: float) -> list[int]:
    """Wait until something can be read from one of the descriptors; return which, none after `seconds`."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return [each for each, _ in poll.poll(max(0.0, seconds) * 1000)]


async def can_read(connection: Any) -> bool:
    """Return whether a reply or the connection's end has come; `can_read_destructive` is deprecated since 8.0."""
    return bool(await (connection.can_read if hasattr(connection, "can_read") else connection.can_read_destructive)())


def close_idle_of(pool: Any) -> None:
    """Close the idle connections of a sync pool; the BlockingConnectionPool of redis-py 5 can only close them all."""
    try:
        pool.disconnect(inuse_connections=False)
    except TypeError:
        for connection in filter(None, tuple(pool.pool.queue)):
            connection.disconnect()


def should_reconnect(connection: Any) -> bool:
    """Return whether redis-py wants to close an async connection once it is given back; redis-py 5 never does."""
    return bool(hasattr(connection, "should_reconnect") and connection.should_reconnect())


def has_unread(connection: Any) -> bool:
    """Return whether a part of a reply, or its end, has come for an async connection.

    Its socket shows what a busy event loop has not read yet.
    """
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    if reader is not None and hasattr(reader, "has_data") and reader.has_data():
        return True
    stream = getattr(connection, "_reader", None)
    writer: Any = getattr(connection, "_writer", None)
    sock = writer.get_extra_info("socket") if hasattr(writer, "get_extra_info") else None
    if sock is None or sock.fileno() < 0:
        return False
    return bool(getattr(stream, "_buffer", b"") or readable([sock.fileno()], 0.0))


def give_back(node: Any, connection: Any) -> None:
    """Give a connection back to its node of an async cluster; redis-py 5 has no method for it."""
    (node.release if hasattr(node, "release") else node._free.append)(connection)  # noqa: SLF001


async def close_idle(node: Any) -> None:
    """Close the idle connections of an async cluster's node; a connection that is being closed is not lent.

    redis-py 5 and 6 have no method for this, and the method of later versions might close a connection lent meanwhile.
    """
    idle = node._free  # noqa: SLF001
    for _ in range(len(idle)):
        if idle:
            connection = idle.popleft()
            try:
                await connection.disconnect()
            finally:
                give_back(node, connection)
