"""How a consumer handles a queue's messages: by its functions, in a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from delayq.errors import InvalidInput
from delayq.model.batch_handler import BatchHandler, Batching
from delayq.model.middleware import Middleware
from delayq.model.outcome import check_async_handler, check_handler, is_coroutine_function
from delayq.runtime import batch_pool_async
from delayq.runtime.batch_pool import BatchPool
from delayq.runtime.fair_dispatch import QueueLane
from delayq.runtime.handler_registry import ConsumerHandlers, HandlerRegistry
from delayq.runtime.multi_queue import DispatchedPool
from delayq.runtime.process_pool.handle import Request
from delayq.runtime.process_pool.job import Pool, pack
from delayq.runtime.process_pool.pool import ProcessPool
from delayq.runtime.recycling import Recycling
from delayq.runtime.task_pool import TaskPool
from delayq.runtime.thread_pool import LanePool, ThreadPool
from delayq.runtime.time_limit import TimeLimit


class HandledQueue(Protocol):
    """The part of a queue, of either face, that its handlers need."""

    @property
    def name(self) -> str: ...
    @property
    def handlers(self) -> HandlerRegistry: ...
    @property
    def middleware(self) -> Middleware: ...
    def settle(self, message: Any, outcome: Any) -> Any: ...
    def extend(self, message: Any, seconds: Any) -> Any: ...
    def report(self, message: Any, progress: Any) -> Any: ...


class HandlerStack:
    """The handlers of a queue, each within its middleware and under its time limit, and the pools that run them.

    Args:
        handler: None for the one registered with the queue.
        concurrency: how many handlers, or batches, run at the same time.
        time_limit: how long each may run.
        pool: "thread" or "process".
        initializer: called first in each process, or None.
        recycling: when a process is replaced by a new one.
        awaits: the queue is one of the async API, where handlers may be async.

    Attributes:
        queue: whose messages are handled.
        handler: called, or awaited if it is async, with each message that is handled by itself.
        choose: returns what a pool calls instead, for a message.
        batching: how the others are handled together; None without a batch handler.

    Raises:
        HandlerMissing: there is neither `handler` nor a registered one.
    """

    def __init__(
        self,
        queue: HandledQueue,
        handler: Callable[[Any], Any] | None,
        concurrency: int,
        time_limit: TimeLimit,
        pool: Pool,
        initializer: Callable[[], object] | None,
        recycling: Recycling,
        awaits: bool,
    ) -> None:
        main = queue.handlers.main_of(handler, check_async_handler if awaits else check_handler)
        if isinstance(main, BatchHandler) and pool == "process":
            raise InvalidInput(f'the batch handler of queue {queue.name} runs in threads: leave out pool="process"')
        self.queue = queue
        self._concurrency = concurrency
        self._recycling = recycling
        self._time_limit = time_limit
        self._awaits = awaits
        self._is_async = any(map(is_coroutine_function, queue.handlers.functions(main)))
        handlers = ConsumerHandlers(queue.handlers, main, queue.middleware, time_limit, self._is_async)
        self.handler: Callable[[Any], Any] = handlers.handle_async if self._is_async else handlers.handle
        self.choose = handlers.function_for
        self.batching: Batching[Any] | None = None
        if isinstance(batch := handlers.main, BatchHandler):
            self.batching = Batching(batch, queue.middleware, handlers.is_alone)
        self._job = pack(queue, main, initializer) if pool == "process" else None

    def make_pool(self, burst: bool, may_start: Callable[[Any], bool], on_outcome: Callable[[], None]) -> Any:
        """Return the pool that runs the handler: of threads, tasks or processes.

        Args:
            burst: a batch stops waiting once nothing else is due.
            may_start: whether a message's lease is still valid.
            on_outcome: called, on any thread, after each outcome.
        """
        if self._job is not None:
            ask = self._asking_from_threads() if self._awaits else self._ask
            parts = (self._job, self._concurrency, self._recycling, self._time_limit)
            return ProcessPool(*parts, ask, may_start, on_outcome)
        if self.batching is not None:
            kind = batch_pool_async.BatchPool if self._is_async else BatchPool
            return kind(self.batching, burst, self.choose, self._concurrency, may_start, on_outcome)
        single = TaskPool if self._is_async else ThreadPool
        return single(self.choose, self._concurrency, may_start, on_outcome)

    def make_dispatched(
        self, lane: QueueLane[Any], may_start: Callable[[Any], bool], on_outcome: Callable[[], None]
    ) -> tuple[Any, DispatchedPool[Any]]:
        """Return the pool that runs the handler beside those of other queues, and the same behind the dispatcher."""
        kind = TaskPool if self._is_async else partial(LanePool, lane.threads)
        pool: Any = kind(self.choose, self._concurrency, may_start, lane.ending(on_outcome))
        return pool, DispatchedPool(lane, pool)

    def _ask(self, request: Request, message: Any, argument: Any) -> Any:
        return getattr(self.queue, request)(message, argument)

    def _asking_from_threads(self) -> Callable[[Request, Any, Any], object]:
        """Return `_ask` for the threads of a pool beside an event loop."""
        events = asyncio.get_running_loop()
        return lambda *request: asyncio.run_coroutine_threadsafe(self._ask(*request), events).result()


def make_single_pool(
    handler: Callable[[Any], Any], concurrency: int, may_start: Callable[[Any], bool], on_outcome: Callable[[], None]
) -> Any:
    """Return a pool that runs a handler on one message or record at a time, on the event loop if it is async."""
    kind = TaskPool if is_coroutine_function(handler) else ThreadPool
    return kind(lambda _: handler, concurrency, may_start, on_outcome)


def check_alone(queues: list[str], pool: Pool, batched: list[str]) -> None:
    """Raise InvalidInput for processes and batches in a consumer of several queues, which cannot share these."""
    if len(queues) > 1 and pool == "process":
        raise InvalidInput(f'pool="process" is for one queue: give each of {", ".join(queues)} its own consumer')
    if len(queues) > 1 and batched:
        raise InvalidInput(f"queue {batched[0]} has a batch handler: give it its own consumer")
