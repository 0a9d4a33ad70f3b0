"""How an idle consumer waits: for a token in a queue's bell, with a timeout kept by the client.

An idle Redis notices that a blocked client's timeout is over only at its next tick, up to 100 ms late. So the timeout
is kept here, on the socket of the blocked connection, which stays blocked across many waits.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.cluster import RedisCluster
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError

from delayq.model.interval import FALLBACK_MS
from delayq.transport.bell_source import BLOCK_SECONDS, CROSSED_SECONDS, POLL_SECONDS, Listener, Source
from delayq.transport.clients import close_idle
from delayq.transport.executor import Client
from delayq.transport.redis_py import is_connected
from delayq.transport.server_check import translate

_SELECT_LIMIT = 1024


class BellListener(Listener):
    """One blocked connection on one bell, or on one shard of a topic: see `Listener`.

    Attributes:
        is_silent: whether the last wait found nothing to read, and no token was looked for since.
    """

    def __init__(self, client: Client, source: Source, *known: Callable[..., Any]) -> None:
        super().__init__(client, source, *known)
        self.is_silent = self._listening = False
        self._process = os.getpid()

    def listen(self) -> None:
        """Start listening for the next token, if not listening already."""
        if self._process != os.getpid():  # forked: the socket is the parent's
            self._connection, self._listening, self._process = None, False, os.getpid()
        if self._listening and time.monotonic() > self._asked_at + 2 * BLOCK_SECONDS:
            self.close()
        if self._listening:
            return
        try:
            if self._connection is not None and self._has_reply():  # it should be silent while nobody listens
                self.close()
            if self._is_away(self.source.key):
                return
            if self._connection is None:
                self._connect()
            if self.fileno() == -1 or time.monotonic() < self._silent_until:
                return
            self._connection.send_command(*self.source.words)
            self._listening, self._asked_at = True, time.monotonic()
        except (RedisError, RedisClusterException) as error:  # the second: no node has the slot
            self.close()
            self._note_silence(error)
            raise translate(error) from error
        except BaseException:
            self._give_up()
            raise

    @property
    def has_connection(self) -> bool:
        """Whether there is a connection to wait on: there is none while the bell's node is away."""
        return self._connection is not None

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 if there is none (not connected, or a server within this process)."""
        sock = getattr(self._connection, "_sock", None)
        return sock.fileno() if isinstance(sock, socket.socket) else -1

    def take_token(self) -> bool:
        """Take the token, if one has come."""
        is_silent, self.is_silent = self.is_silent, False
        if is_silent or not self._listening:
            return False
        if not is_connected(self._connection):  # the client was closed; the next claim opens it again
            self.close()
            return True
        try:
            if not self._connection.can_read(timeout=0):
                return False
            reply = self._connection.read_response(disable_decoding=True)
            self._listening = False
        except MovedError:  # the bell has moved; the next claim finds out where to
            self.close()
            return True
        except AskError:  # it is about to move; until then each BLPOP would return this at once
            self._listening, self._silent_until = False, time.monotonic() + FALLBACK_MS / 1000
            return True
        except RedisError as error:
            self.close()
            raise translate(error) from error
        except BaseException:
            self._give_up()
            raise
        return reply is not None

    def stop_listening(self) -> bool:
        """Stop listening; True if a token came meanwhile, which the caller must use or pass on."""
        if not self._listening:
            return False
        if self._is_away(self.source.key):  # it would not answer, and its token is lost with the connection
            self.close()
            return False
        until = time.monotonic() + CROSSED_SECONDS
        try:
            # Either connection may be faster: do not wait for a BLPOP that arrives after the UNBLOCK, as it blocks.
            while not (self._has_reply() or self._node.execute_command("CLIENT UNBLOCK", str(self._client_id))):
                if time.monotonic() > until:
                    self.close()
                    return False
            reply = self._connection.read_response(disable_decoding=True)
            self._listening = False
        except RedisError:  # no right to unblock, or no connection: a lost token is found by the fallback poll
            self.close()
            return False
        except BaseException:
            self._give_up()
            raise
        return reply is not None

    def interrupt(self) -> None:
        """Break the connection to wake the thread that waits on it; callable from any thread."""
        sock = getattr(self._connection, "_sock", None)
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):  # already closed
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection up."""
        self._listening = False
        is_ours = self._process == os.getpid()
        if self._connection is not None and is_ours:
            self._connection.disconnect()
        connection, self._connection = self._connection, None
        if connection is not None and is_ours:
            self._node.connection_pool.release(connection)

    def _give_up(self) -> None:
        """Give the connection up after an interrupt; redis-py's pool may have taken back another one half made."""
        self.close()
        close_idle(self.client)

    def __del__(self) -> None:
        # When a waiting thread has ended, its bell is garbage-collected; give the connection back to the pool.
        with contextlib.suppress(Exception):
            self.close()

    def _has_reply(self) -> bool:
        """Whether there is something to read, even the connection's end."""
        try:  # redis-py would reconnect, and nothing was requested on that connection
            return not is_connected(self._connection) or bool(self._connection.can_read(timeout=0))
        except RedisError:
            return True

    def _connect(self) -> None:
        client: Any = self.client
        self._node = client
        if isinstance(client, RedisCluster):
            self._node = client.get_redis_connection(client.get_node_from_key(self.source.key))
        self._connection = self._node.connection_pool.get_connection()
        if self.fileno() == -1:
            return
        self._connection.send_command("CLIENT", "ID")
        self._client_id = self._connection.read_response()


def wait(bells: Sequence[BellListener], seconds: float, wake: int = -1, is_exact: bool = True) -> None:  # noqa: ARG001
    """Return when a bell may have rung, when `wake` (a descriptor) is readable, or after `seconds`: always exact."""
    sockets = {bell.fileno(): bell for bell in bells if bell.has_connection}
    if sockets.pop(-1, None) is not None:  # a server within this process (fakeredis) has no socket to wait on
        seconds = min(seconds, POLL_SECONDS)
    descriptors = [*sockets, wake] if wake >= 0 else list(sockets)
    try:
        if max(descriptors, default=0) < _SELECT_LIMIT:  # select keeps microseconds, poll only milliseconds
            readable = select.select(descriptors, [], [], max(0.0, seconds))[0]  # noqa: TID251
        else:
            poll = select.poll()
            for descriptor in descriptors:
                poll.register(descriptor, select.POLLIN)
            readable = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
    except OSError:  # another thread closed a socket before the wait: the caller finds out
        return
    for descriptor in sockets.keys() - readable:
        sockets[descriptor].is_silent = True
