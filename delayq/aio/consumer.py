"""The consumer of the async face: runs the handlers of one queue or several on their messages, as they fall due."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from delayq.aio.handling import Handling
from delayq.aio.lanes import Lanes, Served
from delayq.aio.loop import Loop
from delayq.aio.message import Message
from delayq.aio.queue import Queue
from delayq.aio.signals import watched
from delayq.batch import Batching
from delayq.errors import InvalidInput
from delayq.handling import check_alone
from delayq.job import Pool, check_pool, cores
from delayq.log import log
from delayq.operations.inspecting import check_limit
from delayq.overtime import Overtime
from delayq.rota import weighed
from delayq.times import Seconds, lease_ms, milliseconds


class Consumer:
    """Takes the messages of queues as they fall due, and runs a handler on each: `delayq.Consumer`, awaited.

    It outlives the handler's exceptions and the server's restarts. Leases are renewed while handlers run, as long as
    none of them blocks the event loop: one that computes, or waits without `await`, belongs into a plain function.

    Args:
        queue: whose messages to take. Of several queues in a list, each has the same share of the handlers' runs while
            all are backlogged; of those in a dict, as much as its weight says: 1 to 1000. They may be on different
            servers.
        handler: is called with each `Message`, or with its payload (see `Queue.handler`), but for those of a schedule
            that has a function of its own by `Queue.cron`; the one registered with `Queue.handler`, or with
            `Queue.batch_handler`, when None. An async one runs on the event loop, a plain one in a thread.
        strict: a queue's messages are begun only while nothing of those before it in the list waits here.
        concurrency: handlers, or batches, that run at the same time, of all queues: 1 to 10,000; 8, or as many
            processes as there are cores, when None.
        shutdown_timeout: seconds (0 or more) or a timedelta that running handlers are given in the end. Then async ones
            are cancelled.
        timeout: seconds (0.001 to 86,400) or a timedelta that a handler may run, middleware included; None for ever. An
            async one that takes longer is cancelled, which fails its delivery. A thread cannot be ended: a plain one is
            logged and counted, and goes on under its lease. A process is killed, which fails its delivery.
        pool: "thread", or "process": each handler runs in one of `concurrency` processes, for what computes. It must be
            a plain function of a module, as must the middleware and the functions of schedules; a process imports them.
            Its messages are then those of the sync face.
        initializer: with pool="process": is called in each process first; a function of a module.
        name: of this consumer, as the queue's timer knows it; host, process and a random part when None.

    Attributes:
        handled: messages whose handling has ended, so far.
        failed: of these, deliveries that did not end in an ack.
        overran: deliveries that have run longer than `timeout`, so far.
        queues: whose messages it takes.

    Raises:
        HandlerMissing: neither `handler` nor a registered one.
        InvalidInput: naming the argument.
    """

    def __init__(
        self,
        queue: Queue | Sequence[Queue] | Mapping[Queue, int],
        handler: Callable[[Any], Any] | None = None,
        *,
        strict: bool = False,
        concurrency: int | None = None,
        shutdown_timeout: Seconds = 30,
        timeout: Seconds | None = None,
        pool: Pool = "thread",
        initializer: Callable[[], object] | None = None,
        name: str | None = None,
    ) -> None:
        weights = weighed(queue, strict, Queue)
        self.queues = tuple(each for each, _ in weights)
        check_pool(pool, initializer)
        if concurrency is None:
            concurrency = cores() if pool == "process" else 8
        check_limit(concurrency, "concurrency", most=10_000)
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._overtime = None if timeout is None else Overtime(lease_ms(timeout, "timeout") / 1000)
        parts = (handler, concurrency, self._overtime, pool, initializer)
        self._weights = [weight for _, weight in weights]
        self._handlings = [Handling(each, *parts) for each in self.queues]
        batched = [each.queue.name for each in self._handlings if each.batching]
        check_alone([each.name for each in self.queues], pool, batched)
        self._strict = strict
        self._concurrency = concurrency
        self._watches = pool == "thread"  # processes are watched where they are
        self._grace = milliseconds(shutdown_timeout, "shutdown_timeout") / 1000
        self._loop: Loop | Lanes | None = None
        self._this_grace: float | None = None  # of `stop`, for the running loop
        self._task: asyncio.Task[int] | None = None
        self._handled = self._failed = 0  # in earlier runs

    @property
    def queue(self) -> Queue:
        """The queue; of several, the first."""
        return self.queues[0]

    @property
    def handler(self) -> Callable[[Message], Any]:
        """What is called with each message, and awaited if it is an async function; of several queues, the first's."""
        return self._handlings[0].handler

    @property
    def batching(self) -> Batching[Message] | None:
        """How messages are handled together; None without a batch handler."""
        return self._handlings[0].batching

    @property
    def handled(self) -> int:
        return self._handled + (self._loop.handled if self._loop else 0)

    @property
    def failed(self) -> int:
        return self._failed + (self._loop.failed if self._loop else 0)

    @property
    def _names(self) -> str:
        return " ".join(queue.name for queue in self.queues)

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

    async def _new_loop(self, burst: bool = False, most: int | None = None) -> Loop | Lanes:
        if self._loop is not None:
            raise InvalidInput(f"consumer {self.name} runs already: stop it first, or make another one")
        loop: Loop | Lanes
        if len(self.queues) == 1:
            loop = Loop(self.queue, partial(self._handlings[0].hire, burst), self.name, burst, most)
        else:
            handlers = [each.handler for each in self._handlings]
            served = list(map(Served, self.queues, self._weights, handlers))
            loop = Lanes(served, self._concurrency, self._strict, self.name, burst, most)
        self._loop, self._this_grace = loop, None
        try:
            await loop.connect()
        except BaseException:
            self._loop = None
            raise
        return loop

    async def _consume(self, loop: Loop | Lanes) -> int:
        log.info("consumer started", queue=self._names, consumer=self.name, concurrency=self._concurrency)
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
            log.info("consumer stopped", queue=self._names, consumer=self.name, handled=loop.handled)

    def _tell(self, ended: asyncio.Task[int]) -> None:
        """Log what ended a task that nobody may await."""
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            log.error("consumer ended by an error", queue=self._names, consumer=self.name, error=repr(error))

    async def _run(self, loop: Loop | Lanes) -> int:
        with self._overtime.watching() if self._overtime and self._watches else nullcontext():
            return await loop.run(self._seconds_left)

    def _seconds_left(self) -> float:
        return self._grace if self._this_grace is None else self._this_grace
