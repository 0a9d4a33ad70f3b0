"""Receiving: the wait for a queue's next message, and for a topic's next record."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from delayq.errors import DelayqError, ServerError
from delayq.model import consumer_info
from delayq.model.delivery import Delivery
from delayq.model.interval import FALLBACK_MS
from delayq.model.outcome import RELEASED
from delayq.operations import idle, late_claims, presence
from delayq.operations.claim import Batch, claim_all
from delayq.operations.queue_context import QueueContext
from delayq.operations.settle import settle
from delayq.operations.topics.publish import append_due
from delayq.operations.topics.topic_context import TopicContext
from delayq.operations.upkeep import Upkeep
from delayq.protocol.operation import Operation
from delayq.runtime.lifecycle import consumer_name
from delayq.runtime.receive_wait import CLOSE_SECONDS, closed
from delayq.transport import listener_async
from delayq.transport.clients import impatient
from delayq.transport.executor_async import Client, Executor

D = TypeVar("D", bound=Delivery[Any])
T = TypeVar("T")


class ReceiveWait:
    """Waits for a queue's next message, together with consumers and other receivers; for one task at a time."""

    def __init__(self, context: QueueContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self.name = consumer_name(secrets.token_hex(4))
        self._presence = presence.Presence(context, partial(consumer_info.describe, 0, time.monotonic()))
        self._bells: list[listener_async.BellListener] = []
        self._client: Client | None = None  # of the bells
        self._events: asyncio.AbstractEventLoop | None = None  # also of the bells
        self._until = 0.0
        self._promised = False

    def taking(self, claim: Operation[T]) -> Operation[T]:
        """Return a claim; when it is time, together with this receiver's heartbeat."""
        return self._presence.beside(claim, self.name)

    async def begin(self, seconds: float, held: bool = False) -> None:
        """Listen, and ask for the time of the next event within `seconds`; `held` is as in `idle.plan_sleep`."""
        client = await self._executor.connected()
        if client is not self._client or len(self._bells) != len(self._context.shards):
            await self.close()
            self._client, self._events = client, asyncio.get_running_loop()
            away = self._executor.is_away
            self._bells = [listener_async.BellListener(client, shard.keys.bell, away) for shard in self._context.shards]
        await listener_async.listen(self._bells)
        most = min(FALLBACK_MS, max(1, int(seconds * 1000)))
        self._promised = True  # even if this is cancelled, the server may have it
        self._until = time.monotonic() + most / 1000
        self._until, self._promised, _ = await self._executor.execute(
            idle.plan_sleep(self._context, self.name, most, held)
        )

    async def wait(self, seconds: float) -> None:
        """Return when there may be work, after at most `seconds` or the fallback time."""
        await listener_async.wait(
            self._bells, min(self._until - time.monotonic(), seconds, self._context.outages.pause())
        )
        await listener_async.take_tokens(self._bells)

    def interrupt(self) -> None:
        """End a wait at once."""
        if self._events is asyncio.get_running_loop():  # otherwise it ended with its event loop
            for each in self._bells:
                each.interrupt()

    async def end(self) -> None:
        """Stop listening, and pass on what this receiver no longer watches."""
        tokens = [await each.stop_listening() for each in self._bells]
        if self._client is not None:
            await self._executor.leave(self._client)
        promised, self._promised = self._promised and time.monotonic() < self._until, False
        if (any(tokens) or promised) and self._executor.is_open:
            with contextlib.suppress(ServerError):  # the fallback poll of the others makes up for it
                await self._executor.execute(idle.pass_on(self._context, self.name))

    async def close(self) -> None:
        """Close the blocked connections."""
        bells, self._bells = self._bells, []
        if self._events is asyncio.get_running_loop():  # otherwise they were closed with their event loop
            for each in bells:
                await each.close()


class TopicWait:
    """Waits for a topic's next record, and appends delayed records that fall due meanwhile; for one task."""

    def __init__(self, context: TopicContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._bells: list[listener_async.StreamListener] = []
        self._client: Client | None = None  # of the bells

    async def wait(self, lasts: Sequence[str], seconds: float) -> None:
        """Return when there may be a record after one of `lasts`, ids per shard; after at most `seconds`, or a second.

        It appends due records even if `seconds` is over: the caller reads once more.
        """
        waiting = await self._executor.execute(append_due(self._context))
        shards = self._context.shards
        if len(lasts) != len(shards):  # the topic was created meanwhile, with more shards: the caller reads again
            return
        client = await self._executor.connected()
        if client is not self._client or len(self._bells) != len(shards):
            await self.close()
            self._client = client
            self._bells = [listener_async.StreamListener(client, each.keys.stream, each.keys.waking) for each in shards]
        for each, last, seen in zip(self._bells, lasts, waiting.seen, strict=True):
            each.seen = (last, seen)
            await each.listen()
        end = time.monotonic() + min(seconds, FALLBACK_MS / 1000)
        if waiting.next_ms is not None:
            end = min(end, time.monotonic() + waiting.next_ms / 1000)
        await listener_async.wait(self._bells, end - time.monotonic())
        for each in self._bells:
            await each.take_token()

    async def close(self) -> None:
        """Close the blocked connections."""
        bells, self._bells = self._bells, []
        for each in bells:
            await each.close()


class Receiver(Generic[D]):
    """Takes messages for the callers of `Queue.receive`; a cancelled call hands back what it has claimed.

    Args:
        make_message: turns a delivery into a message.
    """

    def __init__(self, context: QueueContext, executor: Executor, make_message: Callable[..., D]) -> None:
        self._context = context
        self._executor = executor
        self._make_message = make_message
        self._upkeep = Upkeep(context)
        self._closings = 0
        self._forget()
        executor.belongings.append(self._forget)

    def _forget(self) -> None:
        self._idle: list[ReceiveWait] = []  # not in use
        self._running: dict[asyncio.Event, ReceiveWait] = {}  # of calls that have not returned, by their ends
        self._tasks: set[asyncio.Task[Any]] = set()

    async def receive(self, limit: int, lease_ms: int, seconds: float) -> list[D]:
        """Take up to `limit` messages under a lease; wait for the first one for up to `seconds`.

        It waits longer if messages were lost while nobody looked, until their holders have had the time to renew them.

        Raises:
            ServerUnreachable: the queue was closed meanwhile, or a node of a cluster has not answered yet and may
                have handed out messages. Then the next call brings them.
        """
        self._executor.enter()
        if len(self._context.shards) == 1:
            return await self._receive(limit, lease_ms, seconds)
        with impatient(True):
            return await self._receive(limit, lease_ms, seconds)

    async def _receive(self, limit: int, lease_ms: int, seconds: float) -> list[D]:
        deadline = time.monotonic() + seconds
        wait = self._idle.pop() if self._idle else ReceiveWait(self._context, self._executor)
        messages: list[D] = []
        asked, listens, closings = False, False, self._closings
        ended = asyncio.Event()
        self._running[ended] = wait
        try:
            while closings == self._closings:
                batch = await self._claim(limit, lease_ms, wait)
                messages = batch.messages
                late = late_claims.left(self._context)
                left = max(deadline - time.monotonic(), self._context.watch.held_back, late)
                if messages or (left <= 0 and not batch.claimed):
                    if not messages:
                        late_claims.check_all(self._context)
                    return messages
                if batch.claimed or self._upkeep.is_due:
                    continue
                if not asked:
                    listens = True
                    await wait.begin(left, batch.waits)  # then claim again: it only counts what falls due later
                else:
                    await wait.wait(left)
                asked = not asked
        except ServerError:
            if closings == self._closings:
                raise
        finally:
            try:
                if listens:
                    await asyncio.shield(self._kept(self._end(wait)))
                else:
                    self._idle.append(wait)
            except asyncio.CancelledError:
                await asyncio.shield(self._kept(self._release(messages)))
                raise
            finally:
                self._running.pop(ended, None)
                ended.set()
        raise closed(self._context)

    async def close(self) -> None:
        """End the waiting calls, let cancelled ones clean up, and close the blocked connections.

        The calls have a second to return, so that their last commands do not reconnect after the close.
        """
        self._executor.enter()
        self._closings += 1
        for each in self._running.values():
            each.interrupt()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                for ended in tuple(self._running):
                    await ended.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)
        waits, self._idle = self._idle, []
        for wait in waits:
            await wait.close()

    async def _claim(self, limit: int, lease_ms: int, wait: ReceiveWait) -> Batch:
        """Claim without being cancelled in the middle: the messages would be lost until their leases end."""
        cancelled = asyncio.Event()
        claiming = claim_all(self._context, self._make_message, limit, lease_ms, wait.name, cancelled.is_set)
        claimed = self._kept(self._executor.execute(self._upkeep.beside(wait.taking(claiming))))
        try:
            return await asyncio.shield(claimed)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.shield(self._kept(self._hand_back(claimed)))
            raise

    def _kept(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work that `close` waits for if its caller does not."""
        task = asyncio.create_task(work, name="delayq-claim")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _hand_back(self, claimed: asyncio.Task[Batch]) -> None:
        await asyncio.wait({claimed})
        if not claimed.cancelled() and claimed.exception() is None:
            await self._release(claimed.result().messages)

    async def _release(self, messages: Sequence[D]) -> None:
        if messages:
            with contextlib.suppress(ServerError):  # the lease will end
                await self._executor.execute(settle(self._context, [(message, RELEASED) for message in messages]))

    async def _end(self, wait: ReceiveWait) -> None:
        try:
            with contextlib.suppress(DelayqError):  # the claimed messages must not be lost with it
                await wait.end()
        finally:
            self._idle.append(wait)


class TopicWaits:
    """The waits of a topic's readers: one for each concurrent reader."""

    def __init__(self, context: TopicContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._forget()
        executor.belongings.append(self._forget)

    def _forget(self) -> None:
        self._idle: list[TopicWait] = []  # not in use

    async def wait(self, lasts: Sequence[str], seconds: float) -> None:
        """Return when there may be a record after one of `lasts`, after `seconds` at the latest."""
        self._executor.enter()
        idle = self._idle
        wait = idle.pop() if idle else TopicWait(self._context, self._executor)
        try:
            await wait.wait(lasts, seconds)
        finally:
            if idle is self._idle:
                idle.append(wait)
            else:  # the topic was closed meanwhile
                await wait.close()

    async def close(self) -> None:
        """Close the blocked connections."""
        self._executor.enter()
        waits, self._idle = self._idle, []
        for wait in waits:
            await wait.close()
