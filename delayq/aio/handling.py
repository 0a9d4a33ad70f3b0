"""How the messages of a queue of the async face are handled: by which function, and in what it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from delayq.aio import batches
from delayq.aio.crew import Crew
from delayq.aio.message import Message
from delayq.aio.queue import Queue
from delayq.aio.routing import awaited, routed
from delayq.batch import BatchHandler, Batching
from delayq.batches import Batches
from delayq.handling import check_batch_pool, no_handler, surrounded
from delayq.job import Pool, pack
from delayq.outcome import check_async_handler, is_coroutine_function
from delayq.overtime import Overtime
from delayq.processes import Processes
from delayq.typed import adapt
from delayq.workers import Workers


class Handling:
    """The handler of a queue, within its middleware, and watched: `delayq.handling.Handling`, async or plain."""

    def __init__(
        self,
        queue: Queue,
        handler: Callable[[Any], Any] | None,
        concurrency: int,
        overtime: Overtime | None,
        pool: Pool,
        initializer: Callable[[], object] | None,
    ) -> None:
        chosen = queue.registered_handler if handler is None else handler
        if chosen is None and not queue.cron_handlers:
            raise no_handler(queue.name)
        if chosen is not None:
            check_async_handler(chosen)
        self.queue = queue
        self._concurrency = concurrency
        self._overtime = overtime
        batch = chosen if isinstance(chosen, BatchHandler) else None
        # With a batch handler, it is asked for messages of schedules only; but it is async if any function is.
        single = batch.function if batch else chosen and adapt(chosen)
        self.handler: Callable[[Message], Any] = routed(queue.cron_handlers, single, queue.name, self._around)
        self.batching: Batching[Message] | None = None
        if batch is not None:
            check_batch_pool(queue.name, pool)
            self.batching = self._batched(batch)
        self._job = pack(queue, chosen, initializer) if pool == "process" else None

    @property
    def is_async(self) -> bool:
        """Whether the handler is awaited, on the event loop."""
        return is_coroutine_function(self.handler)

    def hire(
        self, burst: bool, may_start: Callable[[Message], bool], on_outcome: Callable[[], None]
    ) -> Crew[Message] | Workers[Message] | Processes[Message]:
        """Return what runs the handler; see `delayq.aio.loop.Loop`."""
        if self._job is not None:
            ask = partial(self._ask, asyncio.get_running_loop())
            return Processes(self._job, self._concurrency, self._overtime, ask, may_start, on_outcome)
        if self.batching is not None:
            kind = batches.Batches if self.is_async else Batches
            return kind(self.batching, burst, self.handler, self._concurrency, may_start, on_outcome)
        return (Crew if self.is_async else Workers)(self.handler, self._concurrency, may_start, on_outcome)

    def _around(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return surrounded(handler, self.queue.middleware, self._overtime)

    def _batched(self, batch: BatchHandler) -> Batching[Message]:
        """Return how messages are handled together; on the event loop if any function that may be called runs there."""
        if self._overtime:
            batch = batch.around(self._overtime.wrap)
        if self.is_async:
            batch = batch.around(awaited)
        return Batching(batch, self.queue.middleware, self.queue.cron_handlers.takes)

    def _ask(self, events: asyncio.AbstractEventLoop, verb: str, message: Message, argument: Any) -> None:
        asyncio.run_coroutine_threadsafe(getattr(self.queue, verb)(message, argument), events).result()
