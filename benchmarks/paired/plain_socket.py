"""A minimal client: a socket and hiredis, with nothing between.

It serves only as a baseline, and shares no code with `delayq.transport.fast_socket`, whose cost it shows.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import hiredis
import redis

from delayq.protocol.command import Command

CHUNK_BYTES = 65_536
_UNREAD = object()


class PlainSocket:
    """The socket of a connected and authenticated redis-py connection, used directly.

    Args:
        client: its pool lends the connection; `close` returns it.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._pool: Any = client.connection_pool
        self._connection = self._pool.get_connection()
        sock = getattr(self._connection, "_sock", None)
        if not isinstance(sock, socket.socket):
            self._pool.release(self._connection)
            raise TypeError(f"{client!r} has no socket")
        self._socket = sock
        self._reader = hiredis.Reader(notEnoughData=_UNREAD)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect and return the connection, since unread replies may still arrive."""
        self._connection.disconnect()
        self._pool.release(self._connection)

    def trip(self, commands: Sequence[Iterable[Any]]) -> list[Any]:
        """Send commands in one round trip; return their replies as bytes, ints and lists.

        Raises:
            redis.ResponseError: the server's error for one of them.
            redis.ConnectionError: the server has closed the connection.
        """
        self._socket.sendall(b"".join([hiredis.pack_command(tuple(words)) for words in commands]))
        return [self._read() for _ in commands]

    def run(self, *calls: Command[Any]) -> list[Any]:
        """Send calls in one round trip; return their replies unread."""
        return self.trip([call.words() for call in calls])

    def _read(self) -> Any:
        while (reply := self._reader.gets()) is _UNREAD:
            data = self._socket.recv(CHUNK_BYTES)
            if not data:
                raise redis.ConnectionError("the server has closed the connection")
            self._reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise redis.ResponseError(str(reply))
        return reply
