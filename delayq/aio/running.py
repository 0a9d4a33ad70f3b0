"""How consumers of the async face run: in the caller's task or in one of their own, until they are stopped."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from delayq.aio.signals import watched
from delayq.errors import InvalidInput
from delayq.log import log
from delayq.times import Seconds, milliseconds


class Run(Protocol):
    """A run of a consumer."""

    @property
    def handled(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def is_stopping(self) -> bool: ...
    @property
    def turns_by(self) -> float: ...
    async def connect(self) -> None: ...
    async def run(self, grace: Callable[[], float]) -> int: ...
    def stop(self, at_once: bool = False, hurry: bool = False) -> None: ...
    def runs(self, task: asyncio.Task[Any] | None) -> bool: ...


class Running:
    """What consumers have in common; each makes its own loops.

    Args:
        name: host, process and a random part when None.
    """

    def __init__(self, name: str | None, concurrency: int, shutdown_timeout: Seconds) -> None:
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._concurrency = concurrency
        self._grace = milliseconds(shutdown_timeout, "shutdown_timeout") / 1000
        self._loop: Run | None = None
        self._this_grace: float | None = None  # of `stop`, for the running loop
        self._task: asyncio.Task[int] | None = None
        self._handled = self._failed = 0  # in earlier runs

    @property
    def handled(self) -> int:
        return self._handled + (self._loop.handled if self._loop else 0)

    @property
    def failed(self) -> int:
        return self._failed + (self._loop.failed if self._loop else 0)

    @property
    def is_running(self) -> bool:
        """Whether it consumes, and was not told to stop."""
        loop = self._loop
        return loop is not None and not loop.is_stopping

    @property
    def stalled(self) -> float:
        """For how many seconds its loop is late with its next move: moments while it turns; 0 while it does not run.

        A server that is away keeps no loop from turning; a handler that blocks the event loop does.
        """
        loop = self._loop
        return 0.0 if loop is None else max(0.0, time.monotonic() - loop.turns_by)

    @property
    def _labels(self) -> dict[str, str]:
        """What its log lines carry."""
        raise NotImplementedError

    async def _new_loop(self) -> Run:
        """Return a loop that is connected, and runs until it is stopped."""
        raise NotImplementedError

    def _watching(self) -> AbstractContextManager[object]:
        return nullcontext()

    async def start(self) -> None:
        """Consume in a task of its own until `stop`, or until the event loop ends.

        Raises:
            ServerError: there was no connection to begin with; a later loss is waited out.
        """
        loop = await self._new_loop()
        self._task = asyncio.create_task(self._consume(loop), name="delayq-consumer")
        self._task.add_done_callback(self._tell)

    async def stop(self, timeout: Seconds | None = None) -> None:  # noqa: ASYNC109  # it ends well, not by a cancel
        """End `start` or `run`: finish what runs, hand back what has not started; wait for the end of `start`.

        Called by a handler, it does not wait: the handler is among what is to be finished.

        Args:
            timeout: what running handlers are given; the shutdown timeout when None.

        Raises:
            DelayqError: what ended the task of `start` before.
        """
        loop, task = self._loop, self._task
        if loop is not None:
            self._this_grace = None if timeout is None else milliseconds(timeout, "timeout") / 1000
            loop.stop()
            if loop.runs(asyncio.current_task()):
                return
        if task is not None:
            await asyncio.wait({task})
            self._task = None
            if not task.cancelled():
                task.result()

    def _check_idle(self) -> None:
        if self._loop is not None:
            raise InvalidInput(f"consumer {self.name} runs already: stop it first, or make another one")

    async def _connect(self, loop: Run) -> None:
        self._loop, self._this_grace = loop, None
        try:
            await loop.connect()
        except BaseException:
            self._loop = None
            raise

    async def _run(self, loop: Run) -> int:
        """Run a loop in this task; if it is in the main thread, it looks out for signals."""
        with watched(lambda: loop.stop(at_once=loop.is_stopping)):
            return await self._consume(loop)

    async def _consume(self, loop: Run) -> int:
        log.info("consumer started", **self._labels, concurrency=self._concurrency)
        run = asyncio.create_task(self._make(loop), name="delayq-loop")
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            while not run.done():  # whoever cancels once more wants it to end at once
                loop.stop(hurry=True)
                try:
                    await asyncio.wait({run})
                except asyncio.CancelledError:
                    loop.stop(at_once=True)
            self._tell(run)
            raise
        finally:
            self._handled, self._failed = self.handled, self.failed
            self._loop = None
            log.info("consumer stopped", **self._labels, handled=loop.handled)

    def _tell(self, ended: asyncio.Task[int]) -> None:
        """Log what ended a task that nobody may await."""
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            log.error("consumer ended by an error", **self._labels, error=repr(error))

    async def _make(self, loop: Run) -> int:
        with self._watching():
            return await loop.run(self._seconds_left)

    def _seconds_left(self) -> float:
        return self._grace if self._this_grace is None else self._this_grace
