"""Receiving for several tasks at a time: each call has its own wait, and a cancelled one loses no message."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from delayq.errors import DelayqError, ServerError
from delayq.model.delivery import Delivery
from delayq.model.outcome import RELEASED
from delayq.operations import late_claims
from delayq.operations.claim import Batch, claim_all
from delayq.operations.queue_context import QueueContext
from delayq.operations.settle import settle
from delayq.operations.topics.topic_context import TopicContext
from delayq.operations.upkeep import Upkeep
from delayq.runtime.receive_wait_async import ReceiveWait, TopicWait
from delayq.runtime.receiver import CLOSE_SECONDS, closed
from delayq.transport.clients import impatient
from delayq.transport.executor_async import Executor

D = TypeVar("D", bound=Delivery[Any])
T = TypeVar("T")


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
