"""The consumer of the async face: runs a queue's handler on its messages, as they fall due."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from delayq.aio.crew import Crew
from delayq.aio.loop import Loop
from delayq.aio.message import Message
from delayq.aio.queue import Queue
from delayq.aio.routing import routed
from delayq.aio.signals import watched
from delayq.errors import HandlerMissing, InvalidInput
from delayq.log import log
from delayq.operations.inspecting import check_limit
from delayq.outcome import check_async_handler, is_coroutine_function
from delayq.overtime import Overtime
from delayq.times import Seconds, lease_ms, milliseconds
from delayq.typed import adapt
from delayq.workers import Workers


class Consumer:
    """Takes a queue's messages as they fall due, and runs a handler on each: `delayq.Consumer`, awaited.

    It outlives the handler's exceptions and the server's restarts. Leases are renewed while handlers run, as long as
    none of them blocks the event loop: one that computes, or waits without `await`, belongs into a plain function.

    Args:
        queue: whose messages to take.
        handler: is called with each `Message`, or with its payload (see `Queue.handler`), but for those of a schedule
            that has a function of its own by `Queue.cron`; the one registered with `Queue.handler` when None. An async
            one runs on the event loop, a plain one in a thread.
        concurrency: handlers that run at the same time: 1 to 10,000.
        shutdown_timeout: seconds or a timedelta that running handlers are given in the end. Then async ones are
            cancelled.
        timeout: seconds (0.001 to 86,400) or a timedelta that a handler may run, middleware included; None for ever. An
            async one that takes longer is cancelled, which fails its delivery. A thread cannot be ended: a plain one is
            logged and counted, and goes on under its lease.
        name: of this consumer, as the queue's timer knows it; host, process and a random part when None.

    Attributes:
        handled: messages whose handling has ended, so far.
        failed: of these, deliveries that did not end in an ack.
        overran: deliveries that have run longer than `timeout`, so far.

    Raises:
        HandlerMissing: neither `handler` nor a registered one.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Callable[[Any], Any] | None = None,
        *,
        concurrency: int = 8,
        shutdown_timeout: Seconds = 30,
        timeout: Seconds | None = None,
        name: str | None = None,
    ) -> None:
        chosen = queue.registered_handler if handler is None else handler
        if chosen is None and not queue.cron_handlers:
            raise HandlerMissing(
                f"queue {queue.name} has no handler: decorate a function with @queue.handler, or pass one"
            )
        if chosen is not None:
            check_async_handler(chosen)
        check_limit(concurrency, "concurrency", most=10_000)
        self.queue = queue
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._overtime = None if timeout is None else Overtime(lease_ms(timeout, "timeout") / 1000)
        chosen = None if chosen is None else adapt(chosen)
        self._handler = routed(queue.cron_handlers, chosen, queue.name, self._around)
        self._concurrency = concurrency
        self._grace = milliseconds(shutdown_timeout, "shutdown_timeout") / 1000
        self._loop: Loop | None = None
        self._this_grace: float | None = None  # of `stop`, for the running loop
        self._task: asyncio.Task[int] | None = None
        self._handled = self._failed = 0  # in earlier runs

    @property
    def handler(self) -> Callable[[Message], Any]:
        """What is called with each message, and awaited if it is an async function."""
        return self._handler

    @property
    def handled(self) -> int:
        return self._handled + (self._loop.handled if self._loop else 0)

    @property
    def failed(self) -> int:
        return self._failed + (self._loop.failed if self._loop else 0)

    @property
    def overran(self) -> int:
        return self._overtime.count if self._overtime else 0

    async def run(self, *, burst: bool = False, max_messages: int | None = None) -> int:
        """Consume until `stop`, SIGTERM or SIGINT; then finish what runs, and hand back what has not started.

        A second signal ends it at once: what ran is delivered again when its lease ends. (Signals are watched for
        in the main thread only.) When the task that awaits it is cancelled, it ends as soon as the handlers do,
        which are cancelled, too: their messages are nacked.

        Args:
            burst: return when nothing is due.
            max_messages: return after so many, 1 or more.

        Returns:
            the number of messages handled.

        Raises:
            ServerError: there was no connection to begin with; a later loss is waited out.
        """
        if max_messages is not None:
            check_limit(max_messages, "max_messages", most=10**12)
        loop = await self._new_loop(burst, max_messages)
        with watched(lambda: loop.stop(at_once=loop.is_stopping)):
            return await self._consume(loop)

    async def start(self) -> None:
        """Consume in a task of its own until `stop`, or until the event loop ends.

        Raises:
            ServerError: there was no connection to begin with; a later loss is waited out.
        """
        loop = await self._new_loop()
        self._task = asyncio.create_task(self._consume(loop), name="delayq-consumer")
        self._task.add_done_callback(self._tell)

    async def stop(self, timeout: Seconds | None = None) -> None:  # noqa: ASYNC109  # it ends well, not by a cancel
        """End `start` or `run`: finish what runs, hand back what has not started; wait for the end of `start`.

        Called by a handler, it does not wait: the handler is among what is to be finished.

        Args:
            timeout: what running handlers are given; the shutdown timeout when None.

        Raises:
            DelayqError: what ended the task of `start` before.
        """
        loop, task = self._loop, self._task
        if loop is not None:
            self._this_grace = None if timeout is None else milliseconds(timeout, "timeout") / 1000
            loop.stop()
            if loop.runs(asyncio.current_task()):
                return
        if task is not None:
            await asyncio.wait({task})
            self._task = None
            if not task.cancelled():
                task.result()

    async def drain(self) -> int:
        """Handle all that is due, and what becomes due meanwhile; return how many deliveries that took."""
        return await self.run(burst=True)

    def _around(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a handler that runs within the queue's middleware, and no longer than it may."""
        wrapped = self.queue.middleware.wrap(handler)
        return self._overtime.wrap(wrapped) if self._overtime else wrapped

    async def _new_loop(self, burst: bool = False, most: int | None = None) -> Loop:
        if self._loop is not None:
            raise InvalidInput(f"consumer {self.name} runs already: stop it first, or make another one")
        kind = Crew if is_coroutine_function(self._handler) else Workers
        loop = Loop(self.queue, partial(kind, self._handler, self._concurrency), self.name, burst, most)
        self._loop, self._this_grace = loop, None
        try:
            await loop.connect()
        except BaseException:
            self._loop = None
            raise
        return loop

    async def _consume(self, loop: Loop) -> int:
        log.info("consumer started", queue=self.queue.name, consumer=self.name, concurrency=self._concurrency)
        run = asyncio.create_task(self._run(loop), name="delayq-loop")
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            while not run.done():  # whoever cancels once more wants it to end at once
                loop.stop(hurry=True)
                try:
                    await asyncio.wait({run})
                except asyncio.CancelledError:
                    loop.stop(at_once=True)
            self._tell(run)
            raise
        finally:
            self._handled, self._failed = self.handled, self.failed
            self._loop = None
            log.info("consumer stopped", queue=self.queue.name, consumer=self.name, handled=loop.handled)

    def _tell(self, ended: asyncio.Task[int]) -> None:
        """Log what ended a task that nobody may await."""
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            log.error("consumer ended by an error", queue=self.queue.name, consumer=self.name, error=repr(error))

    async def _run(self, loop: Loop) -> int:
        with self._overtime.watching() if self._overtime else nullcontext():
            return await loop.run(self._seconds_left)

    def _seconds_left(self) -> float:
        return self._grace if self._this_grace is None else self._this_grace
