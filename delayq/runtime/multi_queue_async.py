"""A run of a consumer of several queues on an event loop: each has a driver; they share the handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from delayq.runtime.consumer_run import QueuesRun
from delayq.runtime.driver_async import Driver, WakeSignal
from delayq.runtime.ended_async import Ended, caught
from delayq.runtime.fair_dispatch import QueueLane


class MultiQueueRun(QueuesRun[Driver, WakeSignal]):
    """The drivers of several queues on an event loop; see `QueuesRun`."""

    _events: asyncio.AbstractEventLoop
    _cancelled: asyncio.CancelledError | None = None

    def _waker(self, lane: QueueLane[Any]) -> WakeSignal:
        signal = WakeSignal()
        lane.wake = signal.wake_from_anywhere
        return signal

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
        self._events = asyncio.get_running_loop()
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
