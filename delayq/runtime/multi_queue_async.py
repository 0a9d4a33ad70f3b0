"""A run of a consumer of several queues on an event loop: each has a driver; they share the handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from delayq.runtime.driver_async import Driver, WakeSignal
from delayq.runtime.ended_async import Ended, caught
from delayq.runtime.fair_dispatch import FairDispatcher, QueueLane


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
        self._events = asyncio.get_running_loop()
        self.dispatcher = FairDispatcher(concurrency, weights, strict, burst, most, self._end)
        self._drivers: list[Driver] = []
        for number, lane in enumerate(self.dispatcher.lanes):
            signal = WakeSignal()
            lane.wake = signal.wake_from_anywhere
            self._drivers.append(make_driver(number, lane, signal))
        self._cancelled: asyncio.CancelledError | None = None

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

    async def connect(self) -> None:
        """Check that the queues can be served.

        Raises:
            ServerError, QueueMismatch
        """
        for driver in self._drivers:
            await driver.connect()

    async def run(self, grace: Callable[[], float]) -> int:
        """Run all until they are stopped; return the number of messages handled.

        Args:
            grace: returns how many seconds running handlers get at the end.

        Raises:
            Exception: the error that ended the run of one queue, and so the others.
        """
        runs = [asyncio.create_task(caught(driver.run(grace)), name="delayq-queue-loop") for driver in self._drivers]
        for run in runs:
            run.add_done_callback(lambda _: self.stop())  # a run that ends by itself has failed
        await self._ended(runs)
        for result in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            result.result()
        if self._cancelled is not None:
            raise self._cancelled
        return self.handled

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task runs a handler, and so must not wait for the run to end."""
        return any(driver.runs(task) for driver in self._drivers)

    def stop(self, at_once: bool = False, hurry: bool = False, by_signal: bool = False) -> None:
        """End the run soon.

        Args:
            at_once: leave running messages to their leases.
            hurry: give running handlers no more time.
            by_signal: another signal will end the run at once.
        """
        self.dispatcher.is_closed = True
        for driver in self._drivers:
            driver.stop(at_once, hurry, by_signal)

    async def _ended(self, runs: Sequence[asyncio.Task[Ended]]) -> None:
        """Wait until all have ended; a cancel hurries them, as with one queue."""
        while not all(run.done() for run in runs):
            try:
                await asyncio.wait(runs)
            except asyncio.CancelledError as error:
                self.stop(at_once=self._cancelled is not None, hurry=True)
                self._cancelled = error

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._events.call_soon_threadsafe(self.stop)
