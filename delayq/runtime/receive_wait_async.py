"""The waits of those who receive by themselves: for a queue's next message, and for a topic's next record."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from delayq.errors import DelayqError, ServerError
from delayq.model import consumer_info
from delayq.model.interval import FALLBACK_MS
from delayq.operations import idle, presence
from delayq.operations.queue_context import QueueContext
from delayq.operations.topics.publish import append_due
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation
from delayq.runtime.bells_async import Bells
from delayq.runtime.consumer_state import consumer_name
from delayq.transport import listener_async
from delayq.transport.bell_source import BellSource, StreamSource
from delayq.transport.executor_async import Executor

T = TypeVar("T")


class ReceiveWait:
    """Waits for a queue's next message, together with consumers and other receivers; for one caller at a time.

    Attributes:
        name: of this receiver.
        process: in which it has this name; a forked child makes another one.
    """

    def __init__(self, context: QueueContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self.name, self.process = consumer_name(secrets.token_hex(4)), os.getpid()
        self._presence = presence.Presence(context, self.name, partial(consumer_info.describe, 0, time.monotonic()))
        self._bells = Bells(executor)
        self._until = 0.0
        self._promised = False

    def taking(self, claim: Operation[T]) -> Operation[T]:
        """Return a claim; when it is time, together with this receiver's heartbeat."""
        return self._presence.beside(claim)

    async def begin(self, seconds: float, held: bool = False) -> None:
        """Listen, and ask for the time of the next event within `seconds`; `held` is as in `idle.plan_sleep`."""
        await self._bells.listen([BellSource(shard.keys.bell) for shard in self._context.shards])
        most = min(FALLBACK_MS, max(1, int(seconds * 1000)))
        self._until, self._promised = time.monotonic() + most / 1000, True  # even if this is cancelled
        planning = idle.plan_sleep(self._context, self.name, most, held)
        try:
            self._until, self._promised, _ = await self._executor.execute(planning)
        except DelayqError:
            self._promised = False  # it could not be passed on, either
            raise

    async def wait(self, seconds: float) -> None:
        """Return when there may be work, after at most `seconds` or the fallback time."""
        seconds = min(self._until - time.monotonic(), seconds, self._context.outages.pause())
        await listener_async.wait(self._bells.listeners, seconds)
        await self._bells.take_tokens()

    def interrupt(self) -> None:
        """End a wait at once."""
        self._bells.interrupt()

    async def end(self) -> None:
        """Stop listening, and pass on what this receiver has watched."""
        has_token = await self._bells.stop()
        promised, self._promised = self._promised and time.monotonic() < self._until, False
        if (has_token or promised) and self._executor.is_open:
            with contextlib.suppress(ServerError):  # the fallback poll of the others makes up for it
                await self._executor.execute(idle.pass_on(self._context, self.name))

    async def close(self) -> None:
        """Close the blocked connections."""
        await self._bells.close()


class TopicWait:
    """Waits for a topic's next record, and appends delayed records that fall due; for one caller at a time."""

    def __init__(self, context: TopicContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._bells = Bells(executor)

    async def wait(self, lasts: Sequence[str], seconds: float) -> None:
        """Return when there may be a record after one of `lasts`, ids per shard; after at most `seconds`, or a second.

        It appends due records even if `seconds` is over: the caller reads once more.
        """
        waiting = await self._executor.execute(append_due(self._context))
        shards = self._context.shards
        if len(lasts) != len(shards):  # the topic was created meanwhile, with more shards: the caller reads again
            return
        seen = zip(shards, lasts, waiting.seen, strict=True)
        await self._bells.listen([StreamSource(it.keys.stream, it.keys.waking, (last, id)) for it, last, id in seen])
        end = time.monotonic() + min(seconds, FALLBACK_MS / 1000)
        if waiting.next_ms is not None:
            end = min(end, time.monotonic() + waiting.next_ms / 1000)
        await listener_async.wait(self._bells.listeners, end - time.monotonic())
        await self._bells.take_tokens()

    async def close(self) -> None:
        """Close the blocked connections."""
        await self._bells.close()
