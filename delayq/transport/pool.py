"""Connection pools that survive an exception at any point, such as KeyboardInterrupt or that of a signal handler.

redis-py takes a connection back that such an exception left half made, or with a reply still to come. The next call
would then get the reply of the one before.
"""

from __future__ import annotations

import sys
import threading
from typing import Any
from weakref import WeakSet

import redis
from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool


class WholePool:
    """What the pools of both APIs have in common: any exception while a connection is lent ends that connection.

    Its repr does not show the password, as that of redis-py 6 and 7 does.
    """

    def reset(self) -> None:
        """Forget all connections."""
        super().reset()  # type: ignore[misc]  # a subclass is a pool of redis-py
        # Weak, so that a connection lost on the way from or to its user is closed as garbage.
        self._in_use_connections: Any = WeakSet()

    def make_connection(self) -> Any:
        """Create a connection."""
        connection: Any = super().make_connection()  # type: ignore[misc]
        if connection.db:
            connection.db = str(connection.db)  # see `Command.words`
        return connection

    @classmethod
    def guard(cls, client: Any) -> Any:
        """Give a client that redis-py made itself such a pool; none of its connections may be lent."""
        client.connection_pool.__class__ = cls
        client.connection_pool._in_use_connections = WeakSet()  # noqa: SLF001
        return client

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Pool(WholePool, redis.ConnectionPool):
    """Like redis-py's, but as `WholePool` says."""

    def reset(self) -> None:
        """Forget all connections, as redis-py asks in a forked process; a thread of the parent may hold the lock."""
        self._lock = threading.RLock()
        super().reset()

    def make_connection(self) -> Any:
        """Create a connection."""
        self._created_connections = len(self._available_connections) + len(self._in_use_connections)
        return super().make_connection()

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Lend a connection."""
        connection: Any = super().get_connection(*args, **options)
        note_lent(connection)
        return connection

    def release(self, connection: Any) -> None:
        """Take a connection back; one that is not known to be whole is closed, and connects again when it is lent."""
        if is_interrupted(connection):
            connection.disconnect()
        super().release(connection)


class SentinelPool(Pool, SentinelConnectionPool):
    """The pool of a client behind sentinels."""


def note_lent(connection: Any) -> None:
    """Note what is being handled while a connection is lent: a caller may send a message from an `except` block."""
    connection.lent_during = id(sys.exception())


def is_interrupted(connection: Any) -> bool:
    """Whether the use of a connection, or its connecting, ends by an exception that redis-py may know nothing about."""
    lent_during = getattr(connection, "lent_during", None)
    connection.lent_during = None  # another exception may get the same id
    error = sys.exception()
    return error is not None and not isinstance(error, RedisError) and id(error) != lent_during
