# Made from delayq/aio/consumer.py by `make faces`: change that file.
"""The consumer: runs the handlers of one queue or several on their messages, as they fall due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from delayq.model.batch_handler import Batching
from delayq.model.message import Message
from delayq.model.units import Seconds, lease_ms
from delayq.model.validation import check_limit
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
from delayq.runtime.time_limit import TimeLimit


class Consumer(Lifecycle):
    """Takes the messages of queues as they fall due, and runs a handler on each.

    It outlives the handler's exceptions and the server's restarts. Leases are renewed while handlers run.

    Args:
        queue: whose messages to take. Of several queues in a list, each has the same share of the handlers' runs while
            all are backlogged; of those in a dict, as much as its weight says: 1 to 1000. They may be on different
            servers.
        handler: is called with each `Message`, or with its payload (see `Queue.handler`), but for those of a schedule
            that has a function of its own by `Queue.cron`; the one registered with `Queue.handler`, or with
            `Queue.batch_handler`, when None.
        strict: a queue's messages are begun only while nothing of those before it in the list waits here.
        concurrency: handlers, or batches, that run at the same time, of all queues: 1 to 10,000; 8, or as many
            processes as there are cores, when None.
        shutdown_timeout: seconds (0 or more) or a timedelta that running handlers are given in the end. What they
            have not done by then is handed back, which uses up no retry.
        timeout: seconds (0.001 to 86,400) or a timedelta that a handler may run, middleware included; None for ever. A
            message that was sent with a `timeout` has that instead. A thread cannot be ended: a handler that
            takes longer is logged and counted, and runs on under its lease. A process is killed, which fails its
            delivery.
        pool: "thread", or "process": each handler runs in one of `concurrency` processes, for what computes. It must be
            a plain function of a module, as must the middleware and the functions of schedules; a process imports them.
        initializer: with pool="process": is called in each process first; a function of a module.
        name: of this consumer, as the queue's timer knows it; host, process and a random part when None.

    Attributes:
        handled: messages whose handling has ended, so far.
        failed: of these, deliveries that were nacked or rejected, for an error or by the handler itself.
        overran: deliveries that have run longer than they may, so far.
        abandoned: messages that the last run has left to others, as a second signal has ended it at once.
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
        self._time_limit = TimeLimit(None if timeout is None else lease_ms(timeout, "timeout") / 1000)
        parts = (handler, concurrency, self._time_limit, pool, initializer)
        self._weights = [weight for _, weight in weights]
        self._stacks = [HandlerStack(each, *parts) for each in self.queues]
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
        """What is called with each message; of several queues, the first's."""
        return self._stacks[0].handler

    @property
    def batching(self) -> Batching[Message] | None:
        """How messages are handled together; None without a batch handler."""
        return self._stacks[0].batching

    @property
    def _labels(self) -> dict[str, str]:
        return {"queue": " ".join(queue.name for queue in self.queues), "consumer": self.name}

    @property
    def overran(self) -> int:
        return self._time_limit.count

    def run(self, *, burst: bool = False, max_messages: int | None = None) -> int:
        """Consume until `stop`, SIGTERM or SIGINT; then finish what runs, and hand back what has not started.

        A second signal ends it at once: what ran is delivered again when its lease ends. (Signals are watched for
        in the main thread only.)

        Args:
            burst: return when nothing is due.
            max_messages: return after so many, 1 or more.

        Returns:
            the number of messages handled.

        Raises:
            ServerError: there was no connection to begin with; a later loss is waited out.
            StartFailed: a function of `Middleware.on_start` has failed.
        """
        if max_messages is not None:
            check_limit(max_messages, "max_messages", most=10**12)
        return self._run(self._new_run(burst, max_messages))

    def drain(self) -> int:
        """Handle all that is due, and what becomes due meanwhile; return how many deliveries that took."""
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
        prepared, deaths = queue.handlers.crons.prepared, queue.middleware.deaths
        return ConsumerEngine(queue._context, Message, leases, pool, self.name, share, most, prepared, deaths)

    def _watching(self) -> AbstractContextManager[object]:
        return self._time_limit.watching() if self._watches else nullcontext()
