"""The transports of redis.asyncio's connections, used without its call path, which costs more time than the server.

redis.asyncio connects, logs in and checks idle connections. In between, packed commands go straight to the transport,
and replies straight to hiredis. See `fast_socket`.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
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
_READS_ITSELF = sys.platform != "win32"  # where the transport has not begun to read already


class FastStream(asyncio.Protocol):
    """The transport of an open connection; for one exchange at a time.

    During an exchange it takes the place of redis-py's protocol, which hears what concerns more than the exchange: that
    the connection was closed, and that writing is to pause.

    Args:
        connection: of redis.asyncio.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stream: asyncio.StreamReader = connection._reader  # noqa: SLF001
        self._transport: asyncio.Transport = connection._writer.transport  # noqa: SLF001
        self._protocol: Any = self._transport.get_protocol()
        self._socket: Any = self._transport.get_extra_info("socket")
        # a descriptor does not show data in TLS's buffer
        self._may_read = _READS_ITSELF and self._transport.get_extra_info("ssl_object") is None
        self._events = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=exceptions.InvalidResponse, replyError=DefaultParser.parse_error)
        self._seconds: float | None = connection.socket_timeout
        self._news = False  # since the reader was last asked: more of the replies, or their end
        self._end: exceptions.RedisError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waits_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it is open as far as this process has heard, and its connection needs no PING before it is used."""
        connection, stream, seconds = self._connection, self._stream, self._connection.health_check_interval
        return not (
            connection._reader is not stream  # noqa: SLF001
            or self._end is not None
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
        self._transport.set_protocol(self)
        try:
            self._transport.write(packet)
            self._waits_since = time.monotonic()  # some event loops' own time stops while something blocks them
            if self._timer is None and self._seconds is not None:
                self._timer = self._events.call_later(self._seconds, self._look)
            for read in reads:
                reply = self._reader.gets()
                while reply is False or isinstance(reply, hiredis.PushNotification):
                    if reply is False and self._end is not None:
                        raise self._end
                    if reply is False:
                        await self._receive(polls_until)
                    reply = self._reader.gets()
                if isinstance(reply, exceptions.ConnectionError):
                    raise reply
                results.append(reply if isinstance(reply, exceptions.RedisError) else read(reply))
        finally:
            self._waits_since = None
            self._transport.set_protocol(self._protocol)
        if polls:
            budget.note(time.perf_counter() < polls_until)
        self._connection.next_health_check = self._events.time() + self._connection.health_check_interval
        return results

    async def _receive(self, polls_until: float) -> None:
        """Wait for the next part of the replies, or for their end.

        It first polls, as `FastSocket` does. Other tasks have their turn while the server works, and between polls.
        """
        now = time.perf_counter()
        while now < polls_until and not self._news:
            await asyncio.sleep(0)
            self._poll(time.perf_counter() + _TURN_SECONDS)
            now = time.perf_counter()
        if not self._news:
            self._waiter = self._events.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._news = False
        self._waits_since = time.monotonic()

    def _poll(self, until: float) -> None:
        """Read from the socket, if something arrives in time."""
        if not self._may_read:
            polling.give_way()
            return
        while not self._news and not self._transport.is_closing():
            try:
                data = os.read(self._socket.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                if time.perf_counter() >= until:
                    return
                polling.give_way()
            except OSError as error:
                self._note_end(error)
            else:
                self.data_received(data) if data else self._note_end(None)

    def data_received(self, data: bytes) -> None:
        """Note a part of the replies."""
        self._reader.feed(data)
        self._wake()

    def eof_received(self) -> bool | None:
        """Note the end of the replies."""
        self._note_end(None)
        keeps: bool | None = self._protocol.eof_received()
        return keeps

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end of the connection."""
        self._note_end(error)
        self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        """Tell redis-py: it waits before it writes, which an exchange need not do."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Tell redis-py."""
        self._protocol.resume_writing()

    def _note_end(self, error: Exception | None) -> None:
        if self._end is None:
            text = "Connection closed by server." if error is None else f"Error while talking to the server: {error}"
            self._end = exceptions.ConnectionError(text)
            self._end.__cause__ = error
        self._wake()

    def _wake(self) -> None:
        self._news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look(self) -> None:
        """End the connection if its server was silent for the socket's timeout; one timer serves many exchanges."""
        self._timer, seconds = None, self._seconds or 0.0
        if self._waits_since is None or self._transport.is_closing():
            return
        left = self._waits_since + seconds - time.monotonic()
        if left <= 0 and (self._news or not self.is_quiet):  # something has blocked the event loop meanwhile
            left = seconds
        if left > 0:
            self._timer = self._events.call_later(left, self._look)
        else:
            self._end = exceptions.TimeoutError("Timeout reading from socket")
            self._wake()
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
