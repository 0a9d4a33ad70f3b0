"""How consumers of the async API run: in the caller's task or in their own, until they are stopped."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from delayq.errors import InvalidInput
from delayq.log import log
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_group_name
from delayq.runtime.ended_async import Ended, caught
from delayq.runtime.hooks import Hooks, call_async
from delayq.runtime.lifecycle import consumer_name
from delayq.runtime.signals_async import watched
from delayq.transport import trampoline
from delayq.transport.loop_bound import LoopBound


class ConsumerRun(Protocol):
    """A run of a consumer."""

    @property
    def handled(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def abandoned(self) -> int: ...
    @property
    def is_stopping(self) -> bool: ...
    @property
    def turns_by(self) -> float: ...
    async def connect(self) -> None: ...
    async def run(self, grace: Callable[[], float]) -> int: ...
    def stop(self, at_once: bool = False, hurry: bool = False, by_signal: bool = False) -> None: ...
    def runs(self, task: asyncio.Task[Any] | None) -> bool: ...


class Lifecycle(LoopBound):
    """What consumers have in common; each class makes its own runs.

    Args:
        name: None for host, process and a random part.
        hooks: called at the start and at the end of a run.
    """

    def __init__(self, name: str | None, concurrency: int, shutdown_timeout: Seconds, hooks: Hooks) -> None:
        self.name = consumer_name(secrets.token_hex(3)) if name is None else check_group_name(name, "consumer name")
        self._concurrency = concurrency
        self._hooks = hooks
        self._grace = milliseconds(shutdown_timeout, "shutdown_timeout") / 1000
        self._this_grace: float | None = None  # of `stop`, for the current run
        self.forget()
        self._handled = self._failed = 0  # in earlier runs
        self.abandoned = 0

    def __repr__(self) -> str:
        return f"consumer {self.name}"

    def forget(self) -> None:
        """Drop what belongs to its event loop."""
        self._current: ConsumerRun | None = None
        self._task: asyncio.Task[Ended] | None = None

    @property
    def handled(self) -> int:
        return self._handled + (self._current.handled if self._current else 0)

    @property
    def failed(self) -> int:
        return self._failed + (self._current.failed if self._current else 0)

    @property
    def is_running(self) -> bool:
        """Whether it is consuming and was not told to stop."""
        run = self._current
        return run is not None and not run.is_stopping

    @property
    def stalled(self) -> float:
        """How many seconds its run is late with its next step: almost 0 while it works; 0 while it does not run.

        A run whose server is away is not late; a run whose event loop is blocked by a handler is.
        """
        run = self._current
        return 0.0 if run is None else max(0.0, time.monotonic() - run.turns_by)

    @property
    def _labels(self) -> dict[str, str]:
        """The fields of its log lines."""
        raise NotImplementedError

    async def _new_run(self) -> ConsumerRun:
        """Return a run that is connected and continues until it is stopped."""
        raise NotImplementedError

    def _watching(self) -> AbstractContextManager[object]:
        return nullcontext()

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
            self._this_grace = None if timeout is None else milliseconds(timeout, "timeout") / 1000
            run.stop()
            if run.runs(asyncio.current_task()):
                return
        if task is not None:
            if not task.done():
                await asyncio.wait({task})
            self._task = None
            if not task.cancelled():
                task.result().result()

    def take_signal(self) -> None:
        """Act as on SIGTERM: end `run` soon; the second time at once, leaving messages to their leases.

        Call it on the event loop's thread.
        """
        run = self._current
        if run is not None:
            run.stop(at_once=run.is_stopping, by_signal=True)

    def _check_idle(self) -> None:
        if self._current is not None:
            self.enter()
        if self._current is not None:
            raise InvalidInput(f"consumer {self.name} is already running: stop it first, or make another one")

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
        log.info("consumer started", **self._labels, concurrency=self._concurrency)
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
            self._handled, self._failed, self.abandoned = self.handled, self.failed, run.abandoned
            self._current = None
            self._loop = None
            log.info("consumer stopped", **self._labels, handled=run.handled)

    def _tell(self, ended: asyncio.Task[Ended]) -> None:
        """Log the error of a task, which nobody may await."""
        error = None if ended.cancelled() else ended.result().error
        if error is not None:
            log.error("consumer failed", **self._labels, error=repr(error))

    async def _make(self, run: ConsumerRun) -> int:
        with self._watching():
            return await run.run(self._seconds_left)

    def _seconds_left(self) -> float:
        return self._grace if self._this_grace is None else self._this_grace
