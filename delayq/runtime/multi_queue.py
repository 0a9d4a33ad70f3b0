"""A run of a consumer of several queues: each has a driver on a separate thread; they share the handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.interval import FALLBACK_MS
from delayq.runtime.driver import Driver, WakeSignal
from delayq.runtime.fair_dispatch import FairDispatcher, QueueLane
from delayq.runtime.task_pool import TaskPool
from delayq.runtime.thread_pool import ThreadPool

D = TypeVar("D", bound=Delivery)


class DispatchedPool(Generic[D]):
    """The handlers of one queue of several: a message begins when the dispatcher gives it a permit.

    Args:
        pool: runs the messages that have a permit.
    """

    def __init__(self, lane: QueueLane[D], pool: ThreadPool[D] | TaskPool[D]) -> None:
        self.count = pool.count
        self.times = pool.times
        self._lane = lane
        self._pool = pool
        lane.start = pool.submit_one

    def room(self, unfinished: int, ahead: bool = True) -> int:  # noqa: ARG002  # the dispatcher decides
        return self._lane.room(self.times.seconds if ahead else None)

    def submit(self, messages: list[D]) -> None:
        self._lane.bring(messages)

    def adapt(self) -> None:
        self._pool.adapt()

    def hasten(self) -> None:
        self._pool.hasten()

    @property
    def is_behind(self) -> bool:
        return self._pool.is_behind

    @property
    def has_outcomes(self) -> bool:
        return bool(self._lane.handed_back) or self._pool.has_outcomes

    def outcomes(self) -> list[tuple[D, oc.Outcome]]:
        outcomes = self._pool.outcomes()
        unstarted = sum(outcome == oc.RELEASED for _, outcome in outcomes)
        return [*outcomes, *((message, oc.RELEASED) for message in self._lane.returned(unstarted))]

    def unstarted(self) -> list[D]:
        waiting = self._lane.withdraw()
        return [*self._pool.unstarted(), *waiting]

    def interrupt(self) -> bool:
        return self._pool.interrupt()


class MultiQueueRun:
    """The drivers of several queues, which act as one driver for the consumer.

    Args:
        make_driver: makes the driver of a queue, by its number.
        concurrency: handlers that run at the same time, over all queues.
        weights: of the queues.
        strict: the order of the queues is their priority.
        burst: return when nothing is due in any queue.
        most: return after this many messages; None for no limit.
    """

    def __init__(
        self,
        make_driver: Callable[[int, QueueLane[Any], WakeSignal], Driver],
        concurrency: int,
        weights: Sequence[int],
        strict: bool,
        burst: bool,
        most: int | None,
    ) -> None:
        self.dispatcher = FairDispatcher(concurrency, weights, strict, burst, most, self.stop)
        self._drivers: list[Driver] = []
        for number, lane in enumerate(self.dispatcher.lanes):
            signal = WakeSignal()
            lane.wake = signal.wake
            self._drivers.append(make_driver(number, lane, signal))
        self._errors: list[BaseException] = []
        self._caller: threading.Thread | None = None

    @property
    def handled(self) -> int:
        return sum(driver.handled for driver in self._drivers)

    @property
    def failed(self) -> int:
        return sum(driver.failed for driver in self._drivers)

    @property
    def abandoned(self) -> int:
        return sum(driver.abandoned for driver in self._drivers)

    @property
    def is_stopping(self) -> bool:
        return self.dispatcher.is_closed

    @property
    def turns_by(self) -> float:
        return min(driver.turns_by for driver in self._drivers)

    def connect(self) -> None:
        """Check that the queues can be served.

        Raises:
            ServerError, QueueMismatch
        """
        for number, driver in enumerate(self._drivers):
            try:
                driver.connect()
            except BaseException:  # the failed one is closed already
                for other in (*self._drivers[:number], *self._drivers[number + 1 :]):
                    other.close()
                raise

    def close(self) -> None:
        """Close what `run` would have closed."""
        for driver in self._drivers:
            driver.close()

    def run(self, grace: Callable[[], float]) -> int:
        """Run all until they are stopped; return the number of messages handled.

        Args:
            grace: returns how many seconds running handlers get at the end.

        Raises:
            Exception: the error that ended the run of one queue, and so the others.
        """
        self._caller = threading.current_thread()
        threads = []
        for driver in self._drivers:
            work = threading.Thread(target=self._run, args=(driver, grace), name="delayq-consumer-queue", daemon=True)
            work.start()
            threads.append(work)
        for work in threads:
            while work.is_alive():  # a signal on another thread is handled when this one wakes
                work.join(FALLBACK_MS / 1000)
        for error in self._errors:
            raise error
        return self.handled

    def runs_on(self, thread: threading.Thread) -> bool:
        """Whether a thread belongs to these runs or pools, and so must not wait for them to end."""
        return thread is self._caller or any(driver.runs_on(thread) for driver in self._drivers)

    def stop(self, at_once: bool = False, by_signal: bool = False) -> None:
        """End the run soon; may be called from any thread, and from a signal handler."""
        self.dispatcher.is_closed = True
        for driver in self._drivers:
            driver.stop(at_once, by_signal)

    def _run(self, driver: Driver, grace: Callable[[], float]) -> None:
        try:
            driver.run(grace)
        except BaseException as error:  # noqa: BLE001  # `run` raises it
            self._errors.append(error)
            self.stop()
