"""How an idle consumer waits: for a token in a queue's bell, with a timeout kept by the client."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError

from delayq.model.interval import FALLBACK_MS
from delayq.transport.bell_source import BLOCK_SECONDS, CROSSED_SECONDS, POLL_SECONDS, Listener, Source
from delayq.transport.clients_async import close_idle
from delayq.transport.executor_async import Client, heed_cancels, times_cancelled
from delayq.transport.polling import give_way
from delayq.transport.redis_py import can_read, give_back
from delayq.transport.server_check import translate

TICK_SECONDS = 0.001  # of an event loop's timers


class BellListener(Listener):
    """One blocked connection on one bell, or on one shard of a topic, and the task that reads its reply.

    It belongs to an event loop. Once that has ended, so has the connection.

    Attributes:
        reading: the task, which ends when a token or anything else has come; None while nobody listens.
        cannot_block: whether there is nothing to wait on: a server within this process (fakeredis) must be polled.
    """

    def __init__(self, client: Client, source: Source, *known: Callable[..., Any]) -> None:
        super().__init__(client, source, *known)
        self._events = asyncio.get_running_loop()
        self.reading: asyncio.Task[Any] | None = None
        self.cannot_block = False

    async def listen(self) -> None:
        """Start listening for the next token, if not listening already."""
        if self.reading is not None and time.monotonic() > self._asked_at + 2 * BLOCK_SECONDS:
            await self.close()
        if self.reading is not None or self.cannot_block or time.monotonic() < self._silent_until:
            return
        asked = times_cancelled()
        try:
            if self._connection is not None and await self._is_stale():
                await self.close()
            if self._is_away(self.source.key):
                return
            if self._connection is None:
                await self._connect()
            if not self.cannot_block:
                await self._connection.send_command(*self.source.words)
            heed_cancels(asked)
        except (RedisError, RedisClusterException) as error:  # the second: no node has the slot
            await self.close()
            heed_cancels(asked)
            self._note_silence(error)
            raise translate(error) from error
        except BaseException:
            await self.close()
            await close_idle(self.client)  # redis-py's pool may have taken a connection back half made
            raise
        if self.cannot_block:
            return
        self._asked_at = time.monotonic()
        reads = self._connection.read_response(disable_decoding=True, timeout=math.inf)
        self.reading = asyncio.create_task(reads, name="delayq-bell")

    async def take_token(self) -> bool:
        """Take the token, if one has come."""
        if self.reading is None or not self.reading.done():
            return False
        return await self._read()

    async def _read(self) -> bool:
        reading, self.reading = self.reading, None
        if reading is None or reading.cancelled():  # as all tasks are at the end of an event loop
            await self.close()
            return False
        try:
            return (await reading) is not None
        except MovedError:  # the bell has moved; the next claim finds out where to
            await self.close()
            return True
        except AskError:  # it is about to move; until then each BLPOP would return this at once
            self._silent_until = time.monotonic() + FALLBACK_MS / 1000
            return True
        except RedisError as error:
            await self.close()
            raise translate(error) from error

    async def stop_listening(self) -> bool:
        """Stop listening; True if a token came meanwhile, which the caller must use or pass on."""
        if self.reading is None:
            return False
        if self._is_away(self.source.key):  # it would not answer, and its token is lost with the connection
            await self.close()
            return False
        asked = times_cancelled()
        try:
            until = time.monotonic() + CROSSED_SECONDS
            # Either connection may be faster: do not wait for a BLPOP that arrives after the UNBLOCK, as it blocks.
            while not self.reading.done() and time.monotonic() < until:
                unblocked = await self._node.execute_command("CLIENT UNBLOCK", str(self._client_id))
                await asyncio.wait({self.reading}, timeout=CROSSED_SECONDS if unblocked else 0.001)
            if self.reading.done():
                return await self._read()
        except Exception:  # noqa: BLE001  # no right to unblock, or no connection: a lost token is found by the fallback poll
            pass
        await self.close()
        heed_cancels(asked)
        return False

    def interrupt(self) -> None:
        """Wake the task that waits on this, which then gives the connection up."""
        if self.reading is not None and self._events is asyncio.get_running_loop():
            self.reading.cancel()

    async def close(self) -> None:
        """Give the connection up."""
        reading, self.reading = self.reading, None
        connection, self._connection = self._connection, None
        if self._events is not asyncio.get_running_loop():
            return
        try:
            if reading is not None:
                reading.cancel()
                await asyncio.wait({reading})  # awaiting it directly would confuse our own cancel with its end
                if not reading.cancelled():
                    reading.exception()  # mark it as retrieved
        finally:
            if connection is not None:
                await connection.disconnect(nowait=True)
                await _release(self._node, connection)

    async def _is_stale(self) -> bool:
        """Whether the kept connection broke while nobody listened; only its end can make it readable."""
        try:
            return not self._connection.is_connected or await can_read(self._connection)
        except RedisError:
            return True

    async def _connect(self) -> None:
        client: Any = self.client
        if isinstance(client, RedisCluster):
            self._node = client.get_node_from_key(self.source.key)
            self._connection = self._node.acquire_connection()
            await self._connection.connect()
        else:
            self._node = client
            self._connection = await client.connection_pool.get_connection()
        self.cannot_block = not isinstance(getattr(self._connection, "_writer", None), asyncio.StreamWriter)
        if not self.cannot_block:
            await self._connection.send_command("CLIENT", "ID")
            self._client_id = await self._connection.read_response()


async def _release(node: Any, connection: Any) -> None:
    if hasattr(node, "connection_pool"):
        await node.connection_pool.release(connection)
    else:
        give_back(node, connection)


async def wait(
    bells: Sequence[BellListener], seconds: float, wake: asyncio.Future[None] | None = None, is_exact: bool = True
) -> None:
    """Return when a bell may have rung, when `wake` is done, or after `seconds`.

    The timers of event loops count in milliseconds and end late. So this one ends early if it must be exact, and the
    rest of the time passes in turns of the event loop, in which others have theirs.
    """
    if any(bell.cannot_block for bell in bells):
        seconds = min(seconds, POLL_SECONDS)
    until = time.monotonic() + seconds
    sources: set[asyncio.Future[Any]] = {bell.reading for bell in bells if bell.reading is not None}
    if wake is not None:
        sources.add(wake)
    coarse = max(0.0, seconds - TICK_SECONDS if is_exact else seconds)
    if sources:
        await asyncio.wait(sources, timeout=coarse, return_when=asyncio.FIRST_COMPLETED)
    else:
        await asyncio.sleep(coarse)
    while is_exact and time.monotonic() < until and not any(each.done() for each in sources):
        give_way()
        await asyncio.sleep(0)
