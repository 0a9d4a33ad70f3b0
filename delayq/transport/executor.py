"""Runs the calls of operations on Redis, sync."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from redis import Redis
from redis.client import NEVER_DECODE
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from delayq.errors import ServerUnreachable
from delayq.model import server_guard
from delayq.protocol.command import Command
from delayq.protocol.late_reply import Silent
from delayq.protocol.operation import Operation, Program, Work
from delayq.transport import clients, redis_py, trampoline
from delayq.transport.cluster import Cluster
from delayq.transport.executor_base import ExecutorBase, checked
from delayq.transport.fast_socket import FastSocketPool
from delayq.transport.forked_locks import heed_fork, renew_in_child
from delayq.transport.script_cache import ScriptCache
from delayq.transport.server_check import check_server, translate

T = TypeVar("T")
Client: TypeAlias = clients.Client


class Executor(ExecutorBase[Client, Cluster]):
    """Runs operations on a client, on any thread; see `ExecutorBase`."""

    def __init__(self, connect: Callable[[], Client], shared: bool, label: str | None) -> None:
        super().__init__(connect, shared, label)
        self._sockets: FastSocketPool | None = None
        self._lock = threading.RLock()  # a signal handler may send while its thread connects
        renew_in_child(self)

    @property
    def is_open(self) -> bool:
        """Whether there is an open client."""
        return self._client is not None

    @property
    def client(self) -> Client:
        """The client, connected and its server checked.

        Raises:
            ServerTooOld, LoginRefused, ServerUnreachable
        """
        self._heed_guard()
        if self._client is None:
            heed_fork()
            with self._lock:
                if self._client is None:
                    client = self._connect()
                    renew_in_child(client)  # until then, only `connect` knows a client that the user made
                    if self._shared:
                        redis_py.import_late_parts()
                    try:
                        if client not in checked:
                            check_server(client)
                    except BaseException:
                        self._drop(client)
                        if self._shared:
                            clients.close_idle(client)
                        raise
                    self._script_cache = ScriptCache()
                    if isinstance(client, Redis):
                        checked.add(client)
                        self._sockets = FastSocketPool(
                            client.connection_pool, not self._shared, self._script_cache.forget
                        )
                    else:
                        self._cluster = Cluster(client)
                    self._client = client
        return self._client

    def connected(self) -> Client:
        """Return the client, connected and its server checked."""
        return self.client

    def close(self) -> None:
        """Close the client unless it is shared; the next call creates a new one."""
        client, sockets, self._client, self._sockets = self._client, self._sockets, None, None
        cluster = self._cluster
        if sockets is not None:
            sockets.end()
        if cluster is not None:
            cluster.close()
        if client is not None:
            self._drop(client)
        if cluster is not None:
            cluster.wait_closed()

    def leave(self, client: Client) -> None:
        """Close connections that a caller opened on a client after it was closed."""
        if self._client is not client and not self._shared:
            clients.close_idle(client)

    def _drop(self, client: Client) -> None:
        if not self._shared:
            clients.close(client)

    def execute(self, operation: Operation[T] | Program[T], repeat: bool = True) -> T:
        """Run an operation to its end and return its result.

        Args:
            repeat: retry for a second or two if the connection fails, except for calls that must not run twice.
        """
        return trampoline.run(operation, self.perform if repeat else self._perform_once)

    def perform(self, effect: list[Command[Any]] | Work, repeat: bool = True) -> Any:
        """Perform what an operation yielded."""
        if callable(effect):
            self._heed_guard()  # it may write to a lake
            return effect()
        return self.run(effect, repeat)

    def _perform_once(self, effect: list[Command[Any]] | Work) -> Any:
        return self.perform(effect, repeat=False)

    def run(self, calls: Sequence[Command[Any]], repeat: bool = True) -> list[Any]:
        """Run calls in one round trip; return their results, or the DelayqError that the server answered with.

        Raises:
            ServerError: the connection failed; calls may or may not have happened.
        """
        client = self._client
        if client is None or server_guard.blocks:
            client = self.client
        plain, retries_unsent = True, repeat
        for call in calls:
            plain = plain and (call.script is not None or call.is_plain)
            repeat = repeat and call.repeats
        try:
            results = self._send(client, calls, plain, repeat, retries_unsent)
            for result in results:
                if isinstance(result, RedisError):
                    again = partial(self._send, client, plain=plain, repeat=repeat, whole=True)
                    return trampoline.run(self._mended(calls, results), again)
        except (RedisError, RedisClusterException) as error:
            self._script_cache.forget()
            raise translate(error) from error
        except BaseException as error:
            if self._shared:  # redis-py's pool may have taken back a connection that an interrupt left half made
                clients.close_idle(client)
            if self._client is client or not isinstance(error, Exception):
                raise
            # An error of redis-py, if another thread closes the connection in use.
            raise ServerUnreachable("the connection was closed while it was in use: call again") from error
        finally:
            if self._client is not client:  # it was closed meanwhile
                self.leave(client)
        return results

    def _send(
        self,
        client: Client,
        calls: Sequence[Command[Any]],
        plain: bool,
        repeat: bool,
        retries_unsent: bool = True,
        whole: bool = False,
    ) -> list[Any]:
        """Send calls; `retries_unsent` if a cluster may retry those that were never sent, also without `repeat`."""
        sockets, script_cache, began = self._sockets, self._script_cache, time.perf_counter()
        try:
            if plain and sockets is not None:
                socket = sockets.take(repeat, began)
                if socket.has_socket:
                    sent = script_cache.complete(calls) if len(calls) > 1 else calls
                    try:
                        results = sockets.use(socket, sent, whole)
                    except (RedisConnectionError, RedisTimeoutError, ReadOnlyError):
                        if not repeat or clients.HURRIES.get()() or clients.is_late(client, began):
                            raise
                        script_cache.forget()
                    else:
                        if sent is not calls:
                            script_cache.note(sent, results)
                        return results
                else:
                    socket.close()
            clients.mark(repeat, began)
            if sockets is not None:
                sockets.close()  # in a small pool, they may hold the last connection
            sent = script_cache.complete(calls)
            if self._cluster is not None:
                replies = self._cluster.run(sent, whole, retries_unsent, repeat)
            else:
                replies = _execute(client, sent, whole)
        finally:
            if clients.BEGAN.get() is not None:
                clients.unmark()
        script_cache.note(sent, replies)
        return [
            reply if isinstance(reply, RedisError | Silent) else call.read(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]


def _execute(client: Any, calls: Sequence[Command[Any]], whole: bool) -> list[Any]:
    """Run calls through redis-py, which parses special replies and retries."""
    options: dict[str, Any] = {NEVER_DECODE: True}  # bytes, even from a client that decodes replies
    if len(calls) == 1:
        try:
            return [client.execute_command(*calls[0].words(whole), **options)]
        except ResponseError as error:
            return [error]
    pipe = client.pipeline(transaction=False)
    for call in calls:
        pipe.execute_command(*call.words(whole), **options)
    return list(pipe.execute(raise_on_error=False))
