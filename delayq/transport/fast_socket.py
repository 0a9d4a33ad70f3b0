"""Connections of a redis-py pool, used without redis-py's call path, which costs more time than the server.

redis-py connects, logs in and maintains the connections. In between, packed commands go straight to the socket, and
replies straight to hiredis.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import hiredis
from redis import exceptions
from redis.connection import ConnectionPool, DefaultParser

from delayq.protocol.command import Command
from delayq.transport import polling
from delayq.transport.clients import mark
from delayq.transport.polling import PollBudget

Read: TypeAlias = Callable[[Any], Any]

_CHUNK_BYTES = 64 * 1024
_SLOWEST = 100_000  # bytes a second of an uplink: written data may be on its way for long
_TOGETHER_BYTES = 16 * 1024  # sent at once: each send wakes the server, and then waits for the GIL while handlers run
_REFUSALS = (exceptions.ReadOnlyError, exceptions.ConnectionError)
_CHECK_AFTER_SECONDS = 30.0  # a firewall may drop a connection that is idle for longer: a PING detects that first


class FastSocket:
    """One connection; for one thread at a time.

    Args:
        pool: lends the connection until `close`.
        budget: of the time for polling, shared with the other connections to its server.

    Attributes:
        has_socket: whether there is a socket; a server within this process (fakeredis) has none.

    Raises:
        redis.exceptions.RedisError: as redis-py does if it cannot connect.
    """

    def __init__(self, pool: ConnectionPool, budget: PollBudget) -> None:
        self._pool = pool
        self._process = os.getpid()
        self._connection: Any = None
        try:
            self._connection = pool.get_connection()
            self._connection.check_health()
            self._socket: Any = getattr(self._connection, "_sock", None)
            self.has_socket = isinstance(self._socket, socket.socket)
            self._budget = budget
            self._polls_until = 0.0
            self._may_poll = type(self._socket) is socket.socket  # a descriptor does not show data in TLS's buffer
            self._may_move = type(pool).owns_connection is not ConnectionPool.owns_connection
            self._reader = hiredis.Reader(
                protocolError=exceptions.InvalidResponse,
                replyError=DefaultParser.parse_error,
            )
            self._used_at = time.perf_counter()
        except BaseException:
            self.close(broken=True)
            raise

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it; after a fork, inherited sockets belong to the parent."""
        return self._process == os.getpid()

    def check(self, thoroughly: bool, now: float) -> bool:
        """Return whether this process may use it, and check that the server is still there.

        That is checked as far as possible without a round trip.

        Args:
            thoroughly: check even a connection that was in use a moment ago.
            now: as `time.perf_counter` says.

        Raises:
            redis.exceptions.ConnectionError: it is not there.
            redis.exceptions.TimeoutError: it is silent, or a firewall has forgotten the connection.
        """
        if self._process != os.getpid():
            return False
        if self._may_move and not self._pool.owns_connection(self._connection):  # sentinels named another master
            raise exceptions.ConnectionError("the connection leads to a server other than the pool's")
        if self._connection._sock is not self._socket:  # noqa: SLF001  # or redis-py would connect again
            raise exceptions.ConnectionError("the connection was closed")
        idle = now - self._used_at > _CHECK_AFTER_SECONDS
        if (idle or thoroughly) and self._connection.can_read(timeout=0):
            raise exceptions.ConnectionError("the connection holds an unexpected reply")
        if idle:
            self._connection.send_command("PING", check_health=False)
            self._connection.read_response()
        return True

    def exchange(self, commands: Iterable[bytes], reads: Iterable[Read]) -> list[Any]:
        """Send packed commands, long ones immediately, and return the values read from the replies.

        A reply is read while the server works on the next command. An error of the server is returned in its place.

        Raises:
            redis.exceptions.ConnectionError, redis.exceptions.TimeoutError: commands may or may not have run.
            redis.exceptions.ReadOnlyError: the server has become a replica; the pool may know its successor.
            redis.exceptions.BusyLoadingError: the server is loading its data and may be ready in a moment.
        """
        results, refusal, began = [], None, time.perf_counter()
        try:
            sent = self._send(commands)
            timeout = self._socket.gettimeout() if sent > _CHUNK_BYTES else None
            if timeout is not None:
                self._socket.settimeout(timeout + sent / _SLOWEST)
            polls = self._may_poll and sent < polling.SHORT_BYTES and self._budget.allows(began)
            self._polls_until = began + polling.SECONDS if polls else 0.0
            for read in reads:
                reply = self._reply()
                if isinstance(reply, exceptions.RedisError):
                    refusal = reply if isinstance(reply, _REFUSALS) else refusal
                    results.append(reply)
                else:
                    results.append(read(reply))
        except TimeoutError as error:
            raise exceptions.TimeoutError("Timeout reading from socket") from error
        except OSError as error:
            raise exceptions.ConnectionError(f"Error while talking to the server: {error}") from error
        if timeout is not None:
            self._socket.settimeout(timeout)
        now = time.perf_counter()
        if polls:
            self._budget.note(now < self._polls_until)
        if refusal is not None:
            raise refusal
        self._used_at = now
        return results

    def _send(self, commands: Iterable[bytes]) -> int:
        """Send commands, short ones together; return the number of bytes."""
        sent, packet = 0, b""
        for command in commands:
            packet = packet + command if packet else command
            if len(packet) >= _TOGETHER_BYTES:
                self._write(packet)
                sent, packet = sent + len(packet), b""
        if packet:
            self._write(packet)
        return sent + len(packet)

    def _write(self, packet: bytes) -> None:
        """Write a packet, each part of it within the socket's timeout."""
        if len(packet) <= _CHUNK_BYTES:
            self._socket.sendall(packet)
            return
        whole = memoryview(packet)
        for start in range(0, len(packet), _CHUNK_BYTES):
            self._socket.sendall(whole[start : start + _CHUNK_BYTES])

    def _reply(self) -> Any:
        while True:
            reply = self._reader.gets()
            if reply is False:
                data = self._receive()
                if not data:
                    raise exceptions.ConnectionError("Connection closed by server.")
                self._reader.feed(data)
            elif not isinstance(reply, hiredis.PushNotification):
                return reply

    def _receive(self) -> bytes:
        """Wait for the next part of the replies.

        It polls if replies come in time, as sleeping and waking take longer than most scripts. Meanwhile it yields the
        processor to others, such as the server.
        """
        while time.perf_counter() < self._polls_until:
            try:  # read the number each time: if another thread closes the file, another one may get its number
                return os.read(self._socket.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                polling.give_way()
        data: bytes = self._socket.recv(_CHUNK_BYTES)
        return data

    def close(self, broken: bool = False) -> None:
        """Give the connection back to its pool.

        Args:
            broken: whether it may hold half a command or half a reply and must not be used again.
        """
        if self._connection is None or not self.is_ours:
            return
        if broken or self._reader.has_data():  # such as half a push message: redis-py would misread the rest
            self._connection.disconnect()
        connection, self._connection = self._connection, None
        self._pool.release(connection)

    def __del__(self) -> None:
        # An exception hit the caller before it used this, or before it gave this back.
        with contextlib.suppress(Exception):
            self.close(broken=True)


class FastSocketPool:
    """The fast sockets to one server.

    Args:
        pool: lends the connections.
        keep: whether to keep a socket between two calls, for a pool that nobody else needs.
        lost: called if a socket was found broken, as another server may have replaced its own.
    """

    def __init__(self, pool: ConnectionPool, keep: bool, lost: Callable[[], object]) -> None:
        self._pool = pool
        self._keep = keep
        self._lost = lost
        self._idle: list[FastSocket] = []
        self._budget = polling.budget_of(pool)

    def take(self, repeats: bool, began: float) -> FastSocket:
        """Lend a socket, to be used or closed.

        Args:
            repeats: whether the commands may run twice, so that no check of the server is needed first.
            began: when the call began, as `time.perf_counter` says.

        Raises:
            redis.exceptions.RedisError: there is no connection after redis-py's retries.
        """
        while True:
            try:
                fast = self._idle.pop()
            except IndexError:
                mark(repeats, began)
                return FastSocket(self._pool, self._budget)
            try:
                if fast.check(not repeats, began):
                    return fast
            except exceptions.RedisError as error:
                fast.close(broken=True)
                if isinstance(error, exceptions.TimeoutError):  # each of the others would wait as long
                    self.close(broken=True)
                self._lost()
            except BaseException:
                fast.close(broken=True)
                raise

    def use(self, fast: FastSocket, calls: Sequence[Command[Any]], whole: bool = False) -> list[Any]:
        """Send calls, return the values read from the replies, like `exchange`, and take the socket back."""
        broken = True
        try:
            words: list[tuple[Any, ...]] = [call.words(whole) for call in calls]
            results = fast.exchange(map(hiredis.pack_command, words), [call.read for call in calls])
            broken = False
        finally:
            if broken or not self._keep:
                fast.close(broken)
            else:
                self._idle.append(fast)
        return results

    def end(self) -> None:
        """Give all sockets back to the pool; those in use follow after their use."""
        self._keep = False
        self.close()

    def close(self, broken: bool = False) -> None:
        """Give all idle sockets back to the pool; see `FastSocket.close`."""
        while True:
            try:
                self._idle.pop().close(broken)
            except IndexError:
                return
