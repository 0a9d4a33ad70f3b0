"""The consumer: runs the handlers of one queue or several on their messages, as they fall due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from delayq.batch import Batching
from delayq.handling import Handling, check_alone
from delayq.job import Pool, check_pool, cores
from delayq.lanes import Lanes, Served
from delayq.loop import Loop
from delayq.message import Message
from delayq.operations.inspecting import check_limit
from delayq.overtime import Overtime
from delayq.queue import Queue
from delayq.rota import weighed
from delayq.running import Running
from delayq.times import Seconds, lease_ms


class Consumer(Running):
    """Takes the messages of a queue, or of several, as they fall due, and runs a handler on each.

    It outlives the handler's exceptions and the server's restarts. Leases are renewed while handlers run.

    Args:
        queue: whose messages to take. Of several queues in a list, each has the same share of the handlers' runs while
            all are backlogged; of those in a dict, as much as its weight says: 1 to 1000. They may be on different
            servers.
        handler: is called with each `Message`, or with its payload (see `Queue.handler`), but for those of a schedule
            that has a function of its own by `Queue.cron`; the one registered with `Queue.handler`, or with
            `Queue.batch_handler`, when None.
        strict: a queue's messages are begun only while nothing of those before it in the list waits here.
        concurrency: handlers, or batches, that run at the same time, of all queues, on threads or in processes: 1 to
            10,000; 8, or as many processes as there are cores, when None.
        shutdown_timeout: seconds (0 or more) or a timedelta that running handlers are given in the end.
        timeout: seconds (0.001 to 86,400) or a timedelta that a handler may run, middleware included; None for ever. A
            thread cannot be ended: a handler that takes longer is logged and counted, and goes on under its lease. A
            process is killed, which fails its delivery.
        pool: "thread", or "process": each handler runs in one of `concurrency` processes, for what computes. It must be
            a plain function of a module, as must the middleware and the functions of schedules; a process imports them.
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
        self._overtime = None if timeout is None else Overtime(lease_ms(timeout, "timeout") / 1000)
        parts = (handler, concurrency, self._overtime, pool, initializer)
        self._weights = [weight for _, weight in weights]
        self._handlings = [Handling(each, *parts) for each in self.queues]
        batched = [each.queue.name for each in self._handlings if each.batching]
        check_alone([each.name for each in self.queues], pool, batched)
        self._strict = strict
        self._watches = pool == "thread"  # processes are watched where they are
        super().__init__(name, concurrency, shutdown_timeout)

    @property
    def queue(self) -> Queue:
        """The queue; of several, the first."""
        return self.queues[0]

    @property
    def handler(self) -> Callable[[Message], Any]:
        """What is called with each message; of several queues, with those of the first."""
        return self._handlings[0].handler

    @property
    def batching(self) -> Batching[Message] | None:
        """How messages are handled together; None without a batch handler."""
        return self._handlings[0].batching

    @property
    def _labels(self) -> dict[str, str]:
        return {"queue": " ".join(queue.name for queue in self.queues), "consumer": self.name}

    @property
    def overran(self) -> int:
        return self._overtime.count if self._overtime else 0

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
        """
        if max_messages is not None:
            check_limit(max_messages, "max_messages", most=10**12)
        return self._run(self._new_loop(burst, max_messages))

    def drain(self) -> int:
        """Handle all that is due, and what becomes due meanwhile; return how many deliveries that took."""
        return self.run(burst=True)

    def _new_loop(self, burst: bool = False, most: int | None = None) -> Loop | Lanes:
        self._check_idle()
        loop: Loop | Lanes
        if len(self.queues) == 1:
            loop = Loop(self.queue, partial(self._handlings[0].hire, burst), self.name, burst, most)
        else:
            handlers = [each.handler for each in self._handlings]
            served = list(map(Served, self.queues, self._weights, handlers))
            loop = Lanes(served, self._concurrency, self._strict, self.name, burst, most)
        loop.connect()
        self._loop, self._this_grace = loop, None
        return loop

    def _watching(self) -> AbstractContextManager[object]:
        return self._overtime.watching() if self._overtime and self._watches else nullcontext()
