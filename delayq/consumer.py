# Made from delayq/aio/consumer.py by `make faces`: change that file.
"""The consumer: runs the handlers of one queue or several on their messages, as they fall due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from delayq.model.batch_handler import Batching
from delayq.model.message import Message
from delayq.model.units import Seconds, lease_ms
from delayq.model.validation import MOST_HANDLERS, check_limit
from delayq.queue import Queue
from delayq.runtime.driver import Driver, WakeSignal
from delayq.runtime.engine import ConsumerEngine
from delayq.runtime.fair_dispatch import QueueLane, Share, WholeShare
from delayq.runtime.fair_share import weighed
from delayq.runtime.handler_pool import HandlerPool
from delayq.runtime.handler_stack import HandlerStack, check_alone
from delayq.runtime.hooks import Hooks
from delayq.runtime.lease_keeper import LeaseKeeper
from delayq.runtime.lifecycle import Lifecycle
from delayq.runtime.multi_queue import MultiQueueRun
from delayq.runtime.process_pool.job import Pool, check_pool, cores
from delayq.runtime.recycling import Recycling
from delayq.runtime.time_limit import TimeLimit


class Consumer(Lifecycle):
    """Takes the messages of queues as they fall due and runs a handler for each.

    It survives exceptions of handlers and restarts of the server. Leases are renewed while handlers run.

    Args:
        queue: one queue, or several: backlogged queues in a list share the handlers equally, those in a dict by
            their weights, 1 to 1,000. They may be on different servers.
        handler: called with each `Message`, or with its payload (see `Queue.handler`), except for messages of schedules
            with their own `Queue.cron` function. None for the one registered with `Queue.handler` or
            `Queue.batch_handler`.
        strict: start a queue's messages only while no queue before it in the list has any waiting here.
        concurrency: handlers, or batches, that run at the same time, over all queues: 1 to 10,000. Default: 8, or
            with processes one per core.
        shutdown_timeout: how long running handlers may take at the end, seconds (0 or more) or a timedelta. Then their
            messages are handed back without using a retry.
        timeout: time limit of a handler with its middleware, seconds (0.001 to 86,400) or a timedelta; None for no
            limit. A message sent with a `timeout` has that instead. A process that takes longer is killed, which fails
            the delivery. A thread cannot be stopped: it is logged and counted, and continues under its lease.
        pool: "thread", or "process" for CPU-bound handlers, which then run in `concurrency` processes. The handler must
            be a plain top-level function of a module, as must the middleware and the functions of schedules, since each
            process imports them.
        initializer: with pool="process": a top-level function that is called first in each process.
        recycle_after: with pool="process": messages, 1 to 10^12, after which a process is replaced by a new one, give
            or take a tenth; None for no limit. It handles messages until the new one is ready.
        recycle_memory: with pool="process": resident memory of a process, in bytes (1 to 10^18), at which it is
            replaced in the same way; checked after each message. It needs /proc, as on Linux. A run fails if a new
            process has this much before its first message.
        name: of this consumer, 1 to 256 bytes, printable; None for host, process and a random part.

    Attributes:
        handled: messages handled so far.
        failed: deliveries nacked or rejected so far, after an error or by the handler itself.
        overran: deliveries that exceeded their time limit so far.
        abandoned: messages that the last run left to others because a second signal ended it immediately.
        queues: the queues that it consumes.

    Raises:
        HandlerMissing: `handler` is None and the queue has no registered handler.
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
        recycle_after: int | None = None,
        recycle_memory: int | None = None,
        name: str | None = None,
    ) -> None:
        weights = weighed(queue, strict, Queue)
        self.queues = tuple(each for each, _ in weights)
        recycling = Recycling.of(recycle_after, recycle_memory)
        check_pool(pool, initializer, recycling)
        if concurrency is None:
            concurrency = cores() if pool == "process" else 8
        check_limit(concurrency, "concurrency", most=MOST_HANDLERS)
        self._time_limit = TimeLimit(None if timeout is None else lease_ms(timeout, "timeout") / 1000)
        parts = (handler, concurrency, self._time_limit, pool, initializer, recycling)
        self._weights = [weight for _, weight in weights]
        self._stacks = [HandlerStack(each, *parts, awaits=False) for each in self.queues]
        batched = [each.queue.name for each in self._stacks if each.batching]
        check_alone([each.name for each in self.queues], pool, batched)
        self._strict = strict
        self._watches = pool == "thread"  # processes are watched where they are
        hooks = Hooks.of([each.middleware for each in self.queues], awaits=False)
        super().__init__(name, concurrency, shutdown_timeout, hooks)

    @property
    def queue(self) -> Queue:
        """The queue; of several, the first."""
        return self.queues[0]

    @property
    def handler(self) -> Callable[[Message], Any]:
        """The function that is called with each message; of several queues, the first."""
        return self._stacks[0].handler

    @property
    def batching(self) -> Batching[Message] | None:
        """The sizes of batches; None without a batch handler."""
        return self._stacks[0].batching

    @property
    def _labels(self) -> dict[str, str]:
        return {"queue": " ".join(queue.name for queue in self.queues), "consumer": self.name}

    @property
    def overran(self) -> int:
        return self._time_limit.count

    def run(self, *, burst: bool = False, max_messages: int | None = None) -> int:
        """Consume until `stop`, SIGTERM, SIGINT or SIGHUP; then finish running handlers and hand back the rest.

        A second signal ends it immediately: running messages are redelivered when their leases end. (Signals are
        handled in the main thread only; the program's own handlers are called too. `start` leaves signals alone.)

        Args:
            burst: return when no message is due.
            max_messages: return after this many messages, 1 or more.

        Returns:
            the number of messages handled.

        Raises:
            ServerError: the first connection failed; later losses are retried.
            StartFailed: a `Middleware.on_start` function failed.
        """
        if max_messages is not None:
            check_limit(max_messages, "max_messages", most=10**12)
        return self._run(self._new_run(burst, max_messages))

    def drain(self) -> int:
        """Handle all due messages, and those that fall due meanwhile; return the number of deliveries.

        Raises:
            LoginRefused: a right is missing; this call does not wait until somebody grants it.
        """
        return self.run(burst=True)

    def _new_run(self, burst: bool = False, most: int | None = None) -> Driver | MultiQueueRun:
        self._check_idle()
        run: Driver | MultiQueueRun
        if len(self.queues) == 1:
            run = self._alone(burst, most)
        else:
            run = MultiQueueRun(self._one_of_several, self._concurrency, self._weights, self._strict, burst, most)
        self._connect(run)
        return run

    def _alone(self, burst: bool, most: int | None) -> Driver:
        queue, signal = self.queue, WakeSignal()
        leases = LeaseKeeper[Message](queue._context)
        pool = self._stacks[0].make_pool(burst, leases.stands, signal.wake_waiting)
        engine = self._engine(queue, leases, pool, WholeShare(burst), most)
        return Driver(engine, pool, queue._executor, signal)

    def _one_of_several(self, number: int, lane: QueueLane[Message], signal: WakeSignal) -> Driver:
        queue = self.queues[number]
        leases = LeaseKeeper[Message](queue._context)
        pool, dispatched = self._stacks[number].make_dispatched(lane, leases.stands, signal.wake_waiting)
        engine = self._engine(queue, leases, dispatched, lane, None)
        return Driver(engine, pool, queue._executor, signal)

    def _engine(
        self, queue: Queue, leases: LeaseKeeper[Message], pool: HandlerPool[Message], share: Share, most: int | None
    ) -> ConsumerEngine[Message]:
        handlers, deaths = queue.handlers, queue.middleware.deaths
        make, prepared, tasks = partial(Message, queue), handlers.prepared, handlers.task_names
        return ConsumerEngine(
            queue._context, make, leases, pool, self.name, share, most, prepared, deaths, self._time_limit, tasks
        )

    def _watching(self) -> AbstractContextManager[object]:
        return self._time_limit.watching() if self._watches else nullcontext()
