"""Runs the calls of operations on Redis, async."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import hiredis
from redis.asyncio.cluster import RedisCluster
from redis.client import NEVER_DECODE
from redis.exceptions import ReadOnlyError, RedisClusterException, RedisError, ResponseError

from delayq.errors import ServerUnreachable
from delayq.model import server_guard
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, Program, Work
from delayq.transport import clients_async, polling, trampoline
from delayq.transport.clients import REPEATS
from delayq.transport.cluster_async import Cluster
from delayq.transport.executor_base import ExecutorBase, checked
from delayq.transport.fast_stream import stream_of
from delayq.transport.loop_bound import LoopBound
from delayq.transport.script_cache import ScriptCache
from delayq.transport.server_check import translate

T = TypeVar("T")
Client: TypeAlias = clients_async.Client

FAST_BYTES = 64 * 1024  # what asyncio takes at once, without waiting for the server to read
MOST_TRIPS = 32  # at once: a thousand tasks share this many connections


class Executor(ExecutorBase[Client, Cluster], LoopBound):
    """Runs operations on a client; see `ExecutorBase`. It belongs to one event loop until closed."""

    def __init__(self, connect: Callable[[], Client], shared: bool, label: str | None) -> None:
        super().__init__(connect, shared, label)
        self.belongings: list[Callable[[], None]] = []  # forget what else belongs to its event loop
        self._forget()

    def __repr__(self) -> str:
        return "the queue or topic"

    def forget(self) -> None:
        """Drop what belongs to its event loop."""
        for forget in self.belongings:
            forget()
        self._forget()

    def _forget(self) -> None:
        self._client = self._cluster = None
        self._script_cache = ScriptCache()
        self._poll_budget = polling.PollBudget()
        self._lock = asyncio.Lock()
        self._trips = asyncio.Semaphore(MOST_TRIPS)

    @property
    def is_open(self) -> bool:
        """Whether there is an open client, on this event loop."""
        return self._client is not None and self._loop is asyncio.get_running_loop()

    async def connected(self) -> Client:
        """Return the client, connected and its server checked.

        Raises:
            InvalidInput: it is in use on another event loop.
            ServerTooOld, LoginRefused, ServerUnreachable
        """
        self._heed_guard()
        self.enter()
        if self._client is not None:
            return self._client
        lock, asked = self._lock, times_cancelled()
        async with lock:
            if self._client is None:
                client = self._connect()
                try:
                    if client not in checked:
                        await clients_async.check_server(client)
                    if self._lock is lock:  # otherwise it was closed meanwhile, and another task may be connecting
                        self._cluster = Cluster(client) if isinstance(client, RedisCluster) else None
                        if not isinstance(client, RedisCluster):
                            checked.add(client)
                            self._poll_budget = polling.budget_of(client.connection_pool)
                        self._client = client
                except (RedisError, RedisClusterException) as error:
                    heed_cancels(asked)
                    raise translate(error) from error
                except IndexError as error:  # of a list of masters
                    raise translate(RedisClusterException("no node of the cluster has a slot yet")) from error
                finally:
                    if self._client is not client:
                        await (clients_async.close_idle(client) if self._shared else self._drop(client))
                heed_cancels(asked)
        return self._client if self._client is not None and self._lock is lock else await self.connected()

    async def close(self) -> None:
        """Close the client unless it is shared; the next call creates a new one."""
        self.enter()
        client, cluster = self._client, self._cluster
        self._forget()
        self._loop = None
        if cluster is not None:
            await cluster.close()
        if client is not None:
            await self._drop(client)

    async def leave(self, client: Client) -> None:
        """Close connections that a caller opened on a client after it was closed."""
        if self._client is not client and not self._shared:
            await clients_async.close_idle(client)

    async def _drop(self, client: Client) -> None:
        if not self._shared:
            await clients_async.close(client)

    def execute(self, operation: Operation[T] | Program[T], repeat: bool = True) -> Coroutine[Any, Any, T]:
        """Run an operation to its end and return its result.

        Args:
            repeat: retry for a second or two if the connection fails, except for calls that must not run twice.
        """
        return trampoline.run_async(operation, self.perform if repeat else self._perform_once)

    def perform(self, effect: list[Command[Any]] | Work, repeat: bool = True, urgent: bool = False) -> Awaitable[Any]:
        """Perform what an operation yielded.

        Args:
            urgent: do not wait behind other calls, however many there are.
        """
        if callable(effect):
            self._heed_guard()  # it may write to a lake
            return asyncio.to_thread(effect)
        return self.run(effect, repeat, urgent)

    def _perform_once(self, effect: list[Command[Any]] | Work) -> Awaitable[Any]:
        return self.perform(effect, repeat=False)

    async def run(self, calls: Sequence[Command[Any]], repeat: bool = True, urgent: bool = False) -> list[Any]:
        """Run calls in one round trip; return their results, or the DelayqError that the server answered with.

        Raises:
            ServerError: the connection failed; calls may or may not have happened.
        """
        asked = times_cancelled()
        client = self._client
        if client is None or self._loop is not asyncio.get_running_loop() or server_guard.blocks:
            client = await self.connected()
        cluster, plain, retries_unsent = self._cluster, True, repeat
        for call in calls:
            plain = plain and (call.script is not None or call.is_plain)
            repeat = repeat and call.repeats
        token = REPEATS.set(repeat)
        try:
            async with contextlib.nullcontext() if urgent else self._trips:
                results = await self._send(client, cluster, calls, plain, repeat, retries_unsent)
                for result in results:
                    if isinstance(result, RedisError):
                        again = partial(self._send, client, cluster, plain=plain, repeat=repeat, whole=True)
                        results = await trampoline.run_async(self._mended(calls, results), again)
                        break
        except (RedisError, RedisClusterException) as error:
            self._script_cache.forget()
            heed_cancels(asked)
            raise translate(error) from error
        except Exception as error:  # redis-py's own, if another task closes the connection in use
            if not isinstance(error, ExceptionGroup):  # of a TaskGroup, which may leave its own cancel behind
                heed_cancels(asked)
            if self._client is client:
                raise
            raise ServerUnreachable("the connection was closed while it was in use: call again") from error
        finally:
            REPEATS.reset(token)
            if self._client is not client:  # it was closed meanwhile
                await self.leave(client)
        heed_cancels(asked)
        return results

    async def _send(
        self,
        client: Client,
        cluster: Cluster | None,
        calls: Sequence[Command[Any]],
        plain: bool,
        repeat: bool,
        retries_unsent: bool = True,
        whole: bool = False,
    ) -> list[Any]:
        """Send calls; `retries_unsent` if a cluster may retry those that were never sent, also without `repeat`."""
        script_cache = self._script_cache
        if cluster is not None:
            sent = script_cache.complete(calls)
            results: list[Any] = await cluster.run(sent, whole, retries_unsent, repeat)
            script_cache.note(sent, results)
            return results
        pool: Any = client.connection_pool  # type: ignore[union-attr]  # it is no cluster
        try:
            connection = await pool.get_connection()
        except RedisError:
            raise
        except BaseException:
            if self._shared:  # redis-py's pool may have taken the connection back half made
                await clients_async.close_idle(client)
            raise
        sent = script_cache.complete(calls) if len(calls) > 1 else calls
        is_whole = False

        async def lost(_: Exception) -> None:
            nonlocal sent
            script_cache.forget()
            sent = script_cache.complete(calls)
            await connection.disconnect(nowait=True)

        try:
            if repeat:  # as often as the client's settings allow
                results = await connection.retry.call_with_retry(
                    lambda: self._talk(client, connection, sent, plain, whole), lost
                )
            else:
                results = await self._talk(client, connection, sent, plain, whole)
            is_whole = True
        finally:
            if not is_whole:
                await connection.disconnect(nowait=True)  # half a reply may be on its way
            await pool.release(connection)
        if sent is not calls:
            script_cache.note(sent, results)
        return results

    async def _talk(
        self, client: Any, connection: Any, calls: Sequence[Command[Any]], plain: bool, whole: bool
    ) -> list[Any]:
        """Send calls on a connection and read their replies; an error of the server takes its reply's place."""
        if not connection.is_connected:
            await connection.connect()  # behind sentinels, to the current master
        words: list[Any] = [call.words(whole) for call in calls]
        packet = b"".join(map(hiredis.pack_command, words))
        fast = stream_of(connection) if plain and len(packet) <= FAST_BYTES else None
        if fast is not None:
            results = await fast.exchange(packet, [call.read for call in calls], self._poll_budget)
        else:
            results = await _talk(client, connection, calls, words, packet)
        is_replica = ReadOnlyError in map(type, results)  # the next call finds the master
        if is_replica or (fast is not None and fast.has_rest):
            await connection.disconnect(nowait=True)
        return results


def times_cancelled() -> int:
    """Return how often the running task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def heed_cancels(asked: int) -> None:
    """Raise CancelledError if the running task was cancelled more than `asked` times.

    redis-py sends with `asyncio.wait_for`, which up to Python 3.11 loses a cancel if the work is already done.
    """
    if times_cancelled() > asked:
        raise asyncio.CancelledError


async def _talk(
    client: Any, connection: Any, calls: Sequence[Command[Any]], words: list[Any], packet: bytes
) -> list[Any]:
    """Send calls on a connection and read their replies by redis-py."""
    await connection.send_packed_command(packet)
    results: list[Any] = []
    for call, (name, *_) in zip(calls, words, strict=True):
        try:
            if call.is_plain:
                reply = await connection.read_response(disable_decoding=True)
            else:  # redis-py reads special replies
                reply = await client.parse_response(connection, name, **{NEVER_DECODE: True})
        except ResponseError as error:
            results.append(error)
        else:
            results.append(call.read(reply))
    return results
