"""Runs an engine on an event loop: performs its effects, while a pool runs the handlers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from delayq.errors import ServerUnreachable
from delayq.runtime import hooks
from delayq.runtime.base_engine import BaseEngine
from delayq.runtime.bells_async import Bells
from delayq.runtime.consumer_run import EngineRun
from delayq.runtime.effects import (
    Call,
    CloseListeners,
    Sleep,
    StopListening,
    WaitForWork,
)
from delayq.runtime.heartbeat_async import Heartbeat
from delayq.runtime.process_pool.pool import ProcessPool
from delayq.runtime.task_pool import TaskPool
from delayq.runtime.thread_pool import ThreadPool
from delayq.transport import trampoline
from delayq.transport.clients import HURRIES, IMPATIENT, impatient
from delayq.transport.executor_async import Executor


class WakeSignal:
    """Ends the wait of a driver, from any thread.

    Attributes:
        is_awaited: a driver waits, or is about to.
        woken: done when the wait should end.
    """

    def __init__(self) -> None:
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.is_awaited = False
        self.woken: asyncio.Future[None] = self._events.create_future()

    def wake(self) -> None:
        """End the wait now, or as soon as it begins; called on the event loop."""
        if not self.woken.done():
            self.woken.set_result(None)

    def wake_from_anywhere(self) -> None:
        """End the wait, from any thread."""
        if threading.get_ident() == self._thread:
            self.wake()
            return
        with contextlib.suppress(RuntimeError):  # the event loop is closed, so nothing waits
            self._events.call_soon_threadsafe(self.wake)

    def wake_waiting(self) -> None:
        """End the wait if there is one, because of an outcome: a driver at work finds outcomes by itself."""
        if self.is_awaited:
            self.is_awaited = False  # once is enough
            self.wake_from_anywhere()

    def clear(self) -> bool:
        """Return whether the wait was ended, and reset that."""
        disturbed = self.woken.done()
        if disturbed:
            self.woken = self._events.create_future()
        return disturbed


class Driver(EngineRun):
    """One run of an engine.

    Args:
        pool: runs the handlers.
        signal: ends waits.
    """

    def __init__(
        self,
        engine: BaseEngine[Any],
        pool: TaskPool[Any] | ThreadPool[Any] | ProcessPool[Any],
        executor: Executor,
        signal: WakeSignal,
    ) -> None:
        super().__init__(engine)
        self._pool = pool
        self._executor = executor
        self._signal = signal
        self._is_hurried = False
        self._cancelled: asyncio.CancelledError | None = None
        self._bells = Bells(executor)

    async def connect(self) -> None:
        """Check that the queue or group can be served.

        Raises:
            ServerError, QueueMismatch, UnknownGroup
        """
        await trampoline.run_async(self._engine.connect(), self._execute)
        await self._executor.connected()  # in case no operation has connected

    async def run(self, grace: Callable[[], float]) -> int:
        """Run the engine until it is stopped; return the number of messages handled.

        If the task is cancelled, as all are when an event loop ends, the run still ends in good order.

        Args:
            grace: returns how many seconds running handlers get at the end.
        """
        heartbeat = Heartbeat(self._beat, self._engine.heartbeat_seconds)
        heartbeat.start()
        try:
            self._pool.start()
            program = self._engine.run(lambda: 0.0 if self._is_hurried else grace())
            await trampoline.run_async(program, self._perform)
        finally:
            await heartbeat.stop()
            self.turns_by = math.inf
            self._engine.pool.unstarted()
            if isinstance(self._pool, TaskPool):
                await self._pool.stop()
            elif isinstance(self._pool, ProcessPool):
                await asyncio.to_thread(self._pool.stop)  # which waits for them
            else:
                self._pool.stop()
            await self._bells.close()
        if self._cancelled is not None:
            raise self._cancelled
        return self.handled

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task runs a handler, and so must not wait for the run to end."""
        return isinstance(self._pool, TaskPool) and self._pool.runs(task)

    def stop(self, at_once: bool = False, hurry: bool = False, by_signal: bool = False) -> None:
        """End the run soon.

        Args:
            at_once: leave running messages to their leases.
            hurry: give running handlers no more time.
            by_signal: another signal will end the run at once.
        """
        self._engine.shutdown.request(at_once, by_signal)
        if hurry:
            self._is_hurried, self._engine.shutdown.deadline = True, 0.0
        self._signal.wake()

    async def _perform(self, effect: Any) -> Any:
        self.turns_by, stopping = time.monotonic(), self._engine.shutdown
        try:
            match effect:
                case WaitForWork(seconds, _, sources):
                    self.turns_by += max(0.0, seconds)
                    if sources and not stopping.is_requested:
                        await self._bells.listen(sources)
                    return await self._bells.wait(effect, self._signal, self._engine.pool)
                case Sleep(seconds):
                    self.turns_by += seconds
                    return await asyncio.sleep(0 if self._is_hurried else seconds)
                case Call():
                    return await hooks.call_async(effect)
                case StopListening() | CloseListeners():
                    call = self._bells.perform(effect)
                case _:
                    call = self._execute(effect)
            if not stopping.is_requested:
                return await call
            try:
                async with asyncio.timeout(stopping.patience()):
                    return await call
            except TimeoutError:
                raise ServerUnreachable("the server did not answer before the consumer's end") from None
        except asyncio.CancelledError as error:
            self.stop(at_once=self._cancelled is not None, hurry=True)
            self._cancelled = error
            raise ServerUnreachable("the consumer was cancelled") from error

    async def _beat(self) -> None:
        with impatient(self._engine.is_spread):
            await trampoline.run_async(self._engine.renew(), partial(self._executor.perform, repeat=False, urgent=True))

    async def _execute(self, effect: Any) -> Any:
        # Stopping must not wait for a server that is away.
        stopping = self._engine.shutdown
        token = HURRIES.set(lambda: stopping.is_requested)  # checked during a call, too: a stop may come meanwhile
        impatience = IMPATIENT.set(self._engine.is_spread)
        try:
            return await self._executor.perform(effect, repeat=not stopping.is_requested)
        finally:
            IMPATIENT.reset(impatience)
            HURRIES.reset(token)
