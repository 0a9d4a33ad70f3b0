"""How the messages of a queue of the async API are handled: by which function, and in which kind of pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from delayq.model.batch_handler import BatchHandler, Batching
from delayq.model.outcome import check_async_handler, is_coroutine_function
from delayq.model.typed_payload import adapt
from delayq.runtime import batch_pool_async
from delayq.runtime.batch_pool import BatchPool
from delayq.runtime.fair_dispatch import QueueLane
from delayq.runtime.fork_guard import guarded
from delayq.runtime.handler_stack import HandledQueue, check_batch_pool, no_handler, surrounded
from delayq.runtime.multi_queue import DispatchedPool
from delayq.runtime.multi_queue_async import submit_from_anywhere
from delayq.runtime.process_pool.handle import Request
from delayq.runtime.process_pool.job import Pool, pack
from delayq.runtime.process_pool.pool import ProcessPool
from delayq.runtime.routing_async import awaited, routed
from delayq.runtime.task_pool import TaskPool
from delayq.runtime.thread_pool import ThreadPool
from delayq.runtime.time_limit import TimeLimit


class HandlerStack:
    """The handler of a queue, async or plain, within its middleware and under its time limit."""

    def __init__(
        self,
        queue: HandledQueue,
        handler: Callable[[Any], Any] | None,
        concurrency: int,
        time_limit: TimeLimit,
        pool: Pool,
        initializer: Callable[[], object] | None,
    ) -> None:
        handlers = queue.handlers
        chosen = handlers.main if handler is None else handler
        if chosen is None and not handlers.crons:
            raise no_handler(queue.name)
        if chosen is not None:
            check_async_handler(chosen)
        self.queue = queue
        self._concurrency = concurrency
        self._time_limit = time_limit
        batch = chosen if isinstance(chosen, BatchHandler) else None
        # With a batch handler, it gets only messages of schedules; but it is async if any function is.
        single = batch.function if batch else chosen and adapt(chosen)
        self.handler: Callable[[Any], Any] = routed(handlers.crons, single, queue.name, self._around)
        self.batching: Batching[Any] | None = None
        if batch is not None:
            check_batch_pool(queue.name, pool)
            self.batching = self._batched(batch)
        self._job = pack(queue, chosen, initializer) if pool == "process" else None

    @property
    def is_async(self) -> bool:
        """Whether the handler is awaited on the event loop."""
        return is_coroutine_function(self.handler)

    def make_pool(
        self, burst: bool, may_start: Callable[[Any], bool], on_outcome: Callable[[], None]
    ) -> TaskPool[Any] | ThreadPool[Any] | ProcessPool[Any]:
        """Return the pool that runs the handler.

        Args:
            burst: a batch stops waiting once nothing else is due.
            may_start: whether a message's lease is still valid.
            on_outcome: called, on any thread, after each outcome.
        """
        if self._job is not None:
            ask = partial(self._ask, asyncio.get_running_loop())
            return ProcessPool(self._job, self._concurrency, self._time_limit, ask, may_start, on_outcome)
        if self.batching is not None:
            kind = batch_pool_async.BatchPool if self.is_async else BatchPool
            return kind(self.batching, burst, self.handler, self._concurrency, may_start, on_outcome)
        return (TaskPool if self.is_async else ThreadPool)(self.handler, self._concurrency, may_start, on_outcome)

    def make_dispatched(
        self, lane: QueueLane[Any], may_start: Callable[[Any], bool], on_outcome: Callable[[], None]
    ) -> tuple[TaskPool[Any] | ThreadPool[Any], DispatchedPool[Any]]:
        """Return the pool that runs the handler beside those of other queues, and the same behind the dispatcher."""
        pool = make_single_pool(self.handler, self._concurrency, may_start, lane.ending(on_outcome))
        start = submit_from_anywhere(pool) if isinstance(pool, TaskPool) else pool.submit_one
        return pool, DispatchedPool(lane, pool, start)

    def _around(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return surrounded(handler, self.queue.handlers.middleware, self._time_limit)

    def _batched(self, batch: BatchHandler) -> Batching[Any]:
        """Return how messages are handled together: on the event loop if any of the functions runs there."""
        batch = batch.around(guarded).around(self._time_limit.wrap)
        if self.is_async:
            batch = batch.around(awaited)
        return Batching(batch, self.queue.handlers.middleware, self.queue.handlers.crons.takes)

    def _ask(self, events: asyncio.AbstractEventLoop, request: Request, message: Any, argument: Any) -> None:
        queue = self.queue
        done = queue.settle(message, argument) if request == "settle" else queue.extend(message, argument)
        asyncio.run_coroutine_threadsafe(done, events).result()


def make_single_pool(
    handler: Callable[[Any], Any], concurrency: int, may_start: Callable[[Any], bool], on_outcome: Callable[[], None]
) -> TaskPool[Any] | ThreadPool[Any]:
    """Return a pool that runs a handler on one message or record at a time, on the event loop or on threads."""
    kind = TaskPool if is_coroutine_function(handler) else ThreadPool
    return kind(handler, concurrency, may_start, on_outcome)
