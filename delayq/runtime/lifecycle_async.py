"""How consumers of the async API run: in the caller's task or in their own, until they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from delayq.log import log
from delayq.model.units import Seconds
from delayq.runtime.consumer_run import Run
from delayq.runtime.consumer_state import ConsumerState
from delayq.runtime.ended_async import Ended, caught
from delayq.runtime.hooks import Hooks, call_async
from delayq.signals import watched
from delayq.transport import trampoline
from delayq.transport.loop_bound import LoopBound


class ConsumerRun(Run, Protocol):
    """A run of a consumer of the async API."""

    async def connect(self) -> None: ...
    async def run(self, grace: Callable[[], float]) -> int: ...
    def stop(self, at_once: bool = False, *, hurry: bool = False, by_signal: bool = False) -> None: ...
    def runs(self, task: asyncio.Task[Any] | None) -> bool: ...


class Lifecycle(ConsumerState[ConsumerRun], LoopBound):
    """What consumers have in common; each class makes its own runs."""

    def __init__(self, name: str | None, concurrency: int, shutdown_timeout: Seconds, hooks: Hooks) -> None:
        super().__init__(name, concurrency, shutdown_timeout, hooks)
        self.forget()

    def __repr__(self) -> str:
        return f"consumer {self.name}"

    def forget(self) -> None:
        """Drop what belongs to its event loop."""
        self._current = None
        self._task: asyncio.Task[Ended] | None = None

    async def _new_run(self) -> ConsumerRun:
        """Return a run that is connected and continues until it is stopped."""
        raise NotImplementedError

    async def start(self) -> None:
        """Consume in a separate task until `stop`, or until the event loop ends.

        Raises:
            ServerError: the first connection failed; later losses are retried.
            StartFailed: a `Middleware.on_start` function failed.
        """
        run = await self._new_run()
        self._task = asyncio.create_task(caught(self._consume_apart(run)), name="delayq-consumer")
        self._task.add_done_callback(self._tell)

    async def stop(self, timeout: Seconds | None = None) -> None:  # noqa: ASYNC109  # it ends in good order, without a cancel
        """End `start` or `run`: finish running handlers, hand back unstarted messages, and wait for `start` to end.

        Called by a handler, it does not wait, since that handler must finish first.

        Args:
            timeout: how long running handlers may take; None for the shutdown timeout.

        Raises:
            DelayqError: the error that ended the task of `start` before.
            InvalidInput: it runs on another event loop.
        """
        if self._current is not None:
            self.enter()
        run, task = self._current, self._task
        if run is not None:
            self._end(run, timeout)
            if run.runs(asyncio.current_task()):
                return
        if task is not None:
            if not task.done():
                await asyncio.wait({task})
            self._task = None
            if not task.cancelled():
                task.result().result()

    def _check_idle(self) -> None:
        if self._current is not None:
            self.enter()  # which forgets a run whose event loop has closed
        super()._check_idle()

    async def _connect(self, run: ConsumerRun) -> None:
        self.enter()
        self._current, self._this_grace = run, None
        try:
            await run.connect()
            await trampoline.run_async(self._hooks.starting(self), call_async)
        except BaseException:
            self._current = None
            self._loop = None
            raise

    async def _run(self, run: ConsumerRun) -> int:
        """Execute a run in this task, and handle signals if it is in the main thread."""
        try:
            with watched(self):
                return await self._consume(run)
        finally:
            await self._call_stops()  # another signal may end this

    async def _consume_apart(self, run: ConsumerRun) -> int:
        try:
            return await self._consume(run)
        finally:
            await self._call_stops()

    async def _call_stops(self) -> None:
        await trampoline.run_async(self._hooks.stopping(self), call_async)

    async def _consume(self, run: ConsumerRun) -> int:
        self._note_start()
        task = asyncio.create_task(caught(self._make(run)), name="delayq-loop")
        try:
            return (await asyncio.shield(task)).result()
        except asyncio.CancelledError:
            while not task.done():  # another cancel means that it must end at once
                run.stop(hurry=True)
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError:
                    run.stop(at_once=True)
            self._tell(task)
            raise
        finally:
            self._loop = None
            self._note_end(run)

    def _tell(self, ended: asyncio.Task[Ended]) -> None:
        """Log the error of a task, which nobody may await."""
        error = None if ended.cancelled() else ended.result().error
        if error is not None:
            log.error("consumer failed", **self._labels, error=repr(error))

    async def _make(self, run: ConsumerRun) -> int:
        with self._watching():
            return await run.run(self._seconds_left)
