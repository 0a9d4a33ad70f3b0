"""How a consumer of the async API handles a queue's messages: by its functions, in a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from delayq.model.outcome import check_async_handler, is_coroutine_function
from delayq.runtime import batch_pool_async
from delayq.runtime.batch_pool import BatchPool
from delayq.runtime.fair_dispatch import QueueLane
from delayq.runtime.handler_stack import BaseStack
from delayq.runtime.multi_queue import DispatchedPool
from delayq.runtime.multi_queue_async import submit_from_anywhere
from delayq.runtime.process_pool.handle import Request
from delayq.runtime.process_pool.pool import ProcessPool
from delayq.runtime.task_pool import TaskPool
from delayq.runtime.thread_pool import ThreadPool


class HandlerStack(BaseStack):
    """The handlers of a queue, async or plain, and the pools that run them."""

    @staticmethod
    def _check(handler: object) -> None:
        check_async_handler(handler)

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
