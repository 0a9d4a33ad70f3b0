"""The tasks that run async handlers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from delayq.log import log
from delayq.model import outcome as oc
from delayq.model.histogram import HandlerTimes
from delayq.runtime import prefetch
from delayq.runtime.shutdown import INTERRUPTED_SECONDS


class Named(Protocol):
    """A handler's argument: a message or a record."""

    id: str


D = TypeVar("D", bound=Named)


class TaskPool(Generic[D]):
    """Runs an async handler on messages, each in its own task, and keeps the outcomes until they are fetched.

    Args:
        handler: awaited with a message.
        count: how many handlers run at the same time.
        may_start: whether a message's lease is still valid.
        on_outcome: called after each outcome.

    Attributes:
        count: how many handlers run at the same time.
        times: how long handlers have run.
    """

    def __init__(
        self,
        handler: Callable[[D], Any],
        count: int,
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        self._handler = handler
        self.count = count
        self._may_start = may_start
        self._on_outcome = on_outcome
        self._inbox: deque[D] = deque()
        self._outcomes: deque[tuple[D, oc.Outcome]] = deque()
        self._is_interrupted = False
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.tasks: set[asyncio.Task[None]] = set()
        self.times = HandlerTimes()
        self._own_times = self.times.own()

    def start(self) -> None:
        """Do nothing: tasks begin with their messages."""

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beyond those that the tasks have; `ahead`: also for busy tasks."""
        return prefetch.prefetch_limit(self.count, unfinished, self.times.seconds if ahead else None)

    def submit(self, messages: list[D]) -> None:
        """Run the handler on messages, in order."""
        self._inbox.extend(messages)
        while self._inbox and len(self.tasks) < self.count:
            self._begin()

    def submit_one(self, message: D) -> None:
        """Run the handler on a message; called on any thread."""
        if threading.get_ident() == self._thread:
            self.submit([message])
        else:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._events.call_soon_threadsafe(self.submit, [message])

    def adapt(self) -> None:
        """Do nothing: there are always as many tasks as allowed."""

    @property
    def is_behind(self) -> bool:
        """False: threads may sleep while messages wait, tasks don't."""
        return False

    def hasten(self) -> None:
        """Do nothing, for the same reason."""

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    def outcomes(self) -> list[tuple[D, oc.Outcome]]:
        """Fetch the outcomes since the last call."""
        fetched = list(self._outcomes)
        self._outcomes.clear()
        return fetched

    def unstarted(self) -> list[D]:
        """Take back the messages that no task has started."""
        taken = list(self._inbox)
        self._inbox.clear()
        return taken

    def interrupt(self) -> bool:
        """Cancel the running handlers; return whether there are any."""
        self._is_interrupted = True
        for task in self.tasks:
            task.cancel()
        return bool(self.tasks)

    async def stop(self) -> None:
        """Cancel the running handlers, and wait for them to end."""
        self.unstarted()
        if self.interrupt():
            _, deaf = await asyncio.wait(self.tasks, timeout=INTERRUPTED_SECONDS)
            if deaf:
                log.warning("handlers ignore cancellation", tasks=[task.get_name() for task in deaf])

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task runs a handler."""
        return task in self.tasks

    def _begin(self) -> None:
        message = self._inbox.popleft()
        task = asyncio.create_task(self._work(message), name=f"delayq-{message.id}")
        self.tasks.add(task)
        task.add_done_callback(partial(self._end, message))

    def _end(self, message: D, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if task.cancelled():  # before it began: otherwise it has an outcome
            self._outcomes.append((message, oc.RELEASED))
        if self._inbox and not self._is_interrupted:
            self._begin()
        self._on_outcome()

    async def _work(self, message: D) -> None:
        if not self._may_start(message):
            self._outcomes.append((message, oc.RELEASED))
            return
        outcome: oc.Outcome = oc.INTERRUPTED
        started = time.perf_counter()
        try:
            returned = await self._returned(self._handler(message))
            outcome = oc.DONE if returned is None else oc.of_return(returned)
        except asyncio.CancelledError as error:
            if not self._is_interrupted:  # it comes from within the handler
                outcome = oc.of_error(error, message)
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: a handler must not end its consumer
            failed = oc.of_error(error, message)
            if not (self._is_interrupted and isinstance(failed, oc.Failed)):  # drivers may turn a cancel into an error
                outcome = failed
        self.times.note(time.perf_counter() - started, self._own_times)
        self._outcomes.append((message, outcome))

    async def _returned(self, awaitable: Awaitable[Any]) -> Any:
        """Await a handler's result.

        Raises:
            CancelledError: even if the handler swallowed it, since its work may not be done.
        """
        returned = await awaitable
        if self._is_interrupted:
            raise asyncio.CancelledError
        return returned
