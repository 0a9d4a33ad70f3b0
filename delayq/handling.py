"""How a queue's messages are handled: by which function, and in what it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.batch import BatchHandler, Batching
from delayq.batches import Batches
from delayq.errors import HandlerMissing, InvalidInput
from delayq.job import Pool, pack
from delayq.message import Message
from delayq.middleware import Middleware
from delayq.outcome import check_handler
from delayq.overtime import Overtime
from delayq.processes import Processes
from delayq.queue import Queue
from delayq.typed import adapt
from delayq.workers import Workers


class Handling:
    """The handler of a queue, within its middleware, and watched.

    Args:
        handler: the one registered with the queue when None.
        concurrency: handlers, or batches, that run at the same time.
        overtime: how long each may run, or None.
        pool: "thread" or "process".
        initializer: is called in each process first, or None.

    Attributes:
        queue: whose messages are handled.
        handler: is called with each message that is handled by itself.
        batching: how the others are handled together; None without a batch handler.

    Raises:
        HandlerMissing: neither `handler` nor a registered one.
    """

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
        batch, chosen = (chosen, None) if isinstance(chosen, BatchHandler) else (None, chosen)
        if chosen is not None:
            check_handler(chosen)
        self.queue = queue
        self._concurrency = concurrency
        self._overtime = overtime
        choose = queue.cron_handlers.route(None if chosen is None else adapt(chosen), queue.name, self._around)
        self.handler: Callable[[Message], Any] = lambda message: choose(message)(message)
        self.batching: Batching[Message] | None = None
        if batch is not None:
            check_batch_pool(queue.name, pool)
            timed = batch.around(overtime.wrap) if overtime else batch
            self.batching = Batching(timed, queue.middleware, queue.cron_handlers.takes)
        self._job = pack(queue, chosen, initializer) if pool == "process" else None

    def hire(
        self, burst: bool, may_start: Callable[[Message], bool], on_outcome: Callable[[], None]
    ) -> Workers[Message] | Processes[Message]:
        """Return what runs the handler; see `delayq.loop.Loop`."""
        if self._job is not None:
            return Processes(self._job, self._concurrency, self._overtime, self._ask, may_start, on_outcome)
        if self.batching is not None:
            return Batches(self.batching, burst, self.handler, self._concurrency, may_start, on_outcome)
        return Workers(self.handler, self._concurrency, may_start, on_outcome)

    def _around(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return surrounded(handler, self.queue.middleware, self._overtime)

    def _ask(self, verb: str, message: Message, argument: Any) -> None:
        getattr(self.queue, verb)(message, argument)


def surrounded(
    handler: Callable[[Any], Any], middleware: Middleware, overtime: Overtime | None
) -> Callable[[Any], Any]:
    """Return a handler within its middleware, and watched."""
    wrapped = middleware.wrap(handler)
    return overtime.wrap(wrapped) if overtime else wrapped


def no_handler(queue: str) -> HandlerMissing:
    """Return the error for a queue that has nothing to be called with its messages."""
    return HandlerMissing(f"queue {queue} has no handler: decorate a function with @queue.handler, or pass one")


def check_batch_pool(queue: str, pool: Pool) -> None:
    """Raise InvalidInput for batches in processes."""
    if pool == "process":
        raise InvalidInput(f'the batch handler of queue {queue} runs in threads: leave pool="process" out')


def check_alone(queues: list[str], pool: Pool, batched: list[str]) -> None:
    """Raise InvalidInput for what a consumer of several queues does not share out: processes, and batches."""
    if len(queues) > 1 and pool == "process":
        raise InvalidInput(f'pool="process" is for one queue: give each of {", ".join(queues)} a consumer of its own')
    if len(queues) > 1 and batched:
        raise InvalidInput(f"queue {batched[0]} has a batch handler: give it a consumer of its own")
