"""A run of a consumer of several queues: each has a driver on a separate thread; they share the handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.interval import FALLBACK_MS
from delayq.runtime.consumer_run import QueuesRun
from delayq.runtime.driver import Driver, WakeSignal
from delayq.runtime.fair_dispatch import QueueLane
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

    def cancel(self, message: D) -> None:
        self._pool.cancel(message)

    def interrupt(self) -> bool:
        return self._pool.interrupt()


class MultiQueueRun(QueuesRun[Driver, WakeSignal]):
    """The drivers of several queues, each on a thread; see `QueuesRun`."""

    _caller: threading.Thread | None = None

    def _waker(self, lane: QueueLane[Any]) -> WakeSignal:
        signal = WakeSignal()
        lane.wake = signal.wake
        return signal

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
        self._caller, self._errors = threading.current_thread(), list[BaseException]()
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

    _end = stop

    def _run(self, driver: Driver, grace: Callable[[], float]) -> None:
        try:
            driver.run(grace)
        except BaseException as error:  # noqa: BLE001  # `run` raises it
            self._errors.append(error)
            self.stop()
