"""The streams of redis.asyncio's connections, used without its call path, which costs more time than the server.

redis.asyncio connects, logs in and checks idle connections. In between, packed commands go straight to the transport,
and replies straight to hiredis. See `fast_socket`.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis import exceptions
from redis.connection import DefaultParser

from delayq.transport import polling
from delayq.transport.polling import PollBudget

_CHUNK_BYTES = 64 * 1024
_TURN_SECONDS = 0.00005  # how long a call polls until other tasks have their turn again


class FastStream:
    """The stream of an open connection; for one exchange at a time.

    Args:
        connection: of redis.asyncio.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stream: asyncio.StreamReader = connection._reader  # noqa: SLF001
        self._transport: asyncio.WriteTransport = connection._writer.transport  # noqa: SLF001
        self._socket: Any = self._transport.get_extra_info("socket")
        self._events = asyncio.get_running_loop()
        # A descriptor does not show data in TLS's buffer, and other loops may read before something has come.
        waits_first = isinstance(self._events, asyncio.SelectorEventLoop) or type(self._events).__module__ == "uvloop"
        self._may_read = waits_first and self._transport.get_extra_info("ssl_object") is None
        self._reader = hiredis.Reader(protocolError=exceptions.InvalidResponse, replyError=DefaultParser.parse_error)
        self._seconds: float | None = connection.socket_timeout
        self._waits_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False

    @property
    def is_usable(self) -> bool:
        """Whether it is open as far as this process has heard, and its connection needs no PING before it is used."""
        connection, stream, seconds = self._connection, self._stream, self._connection.health_check_interval
        return not (
            connection._reader is not stream  # noqa: SLF001
            or self._transport.is_closing()
            or stream.at_eof()
            or getattr(stream, "_buffer", b"")
            or self._reader.has_data()
            or (seconds and self._events.time() > connection.next_health_check)
        )

    @property
    def has_rest(self) -> bool:
        """Whether more than the replies was received, such as half a push message: redis-py would misread the rest."""
        return bool(self._reader.has_data())

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has arrived, not even the connection's end, which asyncio may not have read yet."""
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return not poll.poll(0)

    @property
    def _has_unread(self) -> bool:
        return self._transport.is_closing() or self._stream.at_eof() or bool(getattr(self._stream, "_buffer", b""))

    async def exchange(self, packet: bytes, reads: Sequence[Callable[[Any], Any]], budget: PollBudget) -> list[Any]:
        """Send packed commands, at most 64 KiB, and return the values read from the replies.

        An error of the server is returned in its place. After an exception the connection must be closed.

        Raises:
            redis.exceptions.ConnectionError, redis.exceptions.TimeoutError: commands may or may not have run.
            redis.exceptions.BusyLoadingError: the server is loading its data and may be ready in a moment.
        """
        results: list[Any] = []
        began = time.perf_counter()
        polls = len(packet) < polling.SHORT_BYTES and budget.allows(began)
        polls_until = began + polling.SECONDS if polls else 0.0
        self._transport.write(packet)
        self._waits_since = time.monotonic()  # some event loops' own time stops while something blocks them
        if self._timer is None and self._seconds is not None:
            self._timer = self._events.call_later(self._seconds, self._look)
        try:
            for read in reads:
                reply = self._reader.gets()
                while reply is False or isinstance(reply, hiredis.PushNotification):
                    if reply is False:
                        self._reader.feed(await self._receive(polls_until))
                    reply = self._reader.gets()
                if isinstance(reply, exceptions.ConnectionError):
                    raise reply
                results.append(reply if isinstance(reply, exceptions.RedisError) else read(reply))
        finally:
            self._waits_since = None
        if polls:
            budget.note(time.perf_counter() < polls_until)
        self._connection.next_health_check = self._events.time() + self._connection.health_check_interval
        return results

    async def _receive(self, polls_until: float) -> bytes:
        """Wait for the next part of the replies.

        It first polls, as `FastSocket` does. Other tasks have their turn while the server works, and between polls.
        """
        data: bytes | None = None
        try:
            while time.perf_counter() < polls_until and not self._has_unread and data is None:
                await asyncio.sleep(0)
                data = self._polled()
            if data is None:
                data = await self._stream.read(_CHUNK_BYTES)
        except OSError as error:
            raise exceptions.ConnectionError(f"Error while talking to the server: {error}") from error
        if not data:
            if self._is_late:
                raise exceptions.TimeoutError("Timeout reading from socket")
            raise exceptions.ConnectionError("Connection closed by server.")
        self._waits_since = time.monotonic()
        return data

    def _polled(self) -> bytes | None:
        """Read from the socket for a moment; return None if nothing has come, or if the event loop must read it."""
        if not self._may_read:
            polling.give_way()
            return None
        until = time.perf_counter() + _TURN_SECONDS
        while not self._has_unread:
            try:
                return os.read(self._socket.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                if time.perf_counter() >= until:
                    return None
                polling.give_way()
        return None

    def _look(self) -> None:
        """End the connection if its server was silent for the socket's timeout; one timer serves many exchanges."""
        self._timer, seconds = None, self._seconds or 0.0
        if self._waits_since is None or self._transport.is_closing():
            return
        left = self._waits_since + seconds - time.monotonic()
        if left <= 0 and (self._has_unread or not self.is_quiet):  # something has blocked the event loop meanwhile
            left = seconds
        if left > 0:
            self._timer = self._events.call_later(left, self._look)
        else:
            self._is_late = True
            self._transport.abort()


def stream_of(connection: Any) -> FastStream | None:
    """Return the fast stream of a connection, if it can be used now; None if redis-py must do the next exchange."""
    fast: FastStream | None = getattr(connection, "fast_stream", None)
    if fast is not None and fast.is_usable:
        return fast
    is_streamed = isinstance(getattr(connection, "_writer", None), asyncio.StreamWriter)
    if not is_streamed or hasattr(connection, "connection_pool"):  # fakeredis; sentinels' connections look at replies
        return None
    fast = FastStream(connection)
    if not fast.is_usable:
        return None
    connection.fast_stream = fast
    return fast
