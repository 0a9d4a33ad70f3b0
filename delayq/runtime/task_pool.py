"""The tasks that run async handlers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, Generic, Protocol, TypeVar

from delayq.log import log
from delayq.model import outcome as oc
from delayq.model.delivery import running
from delayq.model.histogram import HandlerTimes
from delayq.runtime import fork_guard, prefetch
from delayq.runtime.shutdown import INTERRUPTED_SECONDS


class Named(Protocol):
    """A handler's argument: a message or a record."""

    id: str


D = TypeVar("D", bound=Named)

BURST_SECONDS = 0.0005  # a task handles messages one after the other for so long before others have their turn


class TaskPool(Generic[D]):
    """Runs an async handler on messages, in tasks, and keeps the outcomes until they are fetched.

    A new task for each message would cost more than many handlers. So a task handles one message after the other until
    a handler waits for something: then the task is this handler's alone, and ends with it. Each has its own context.

    Args:
        choose: returns the function whose result is awaited, for a message.
        count: how many handlers run at the same time.
        may_start: whether a message's lease is still valid.
        on_outcome: called after each outcome.

    Attributes:
        count: how many handlers run at the same time.
        times: how long handlers have run.
    """

    def __init__(
        self,
        choose: Callable[[D], Callable[[D], Any]],
        count: int,
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        self._choose = choose
        self.count = count
        self._may_start = may_start
        self._on_outcome = on_outcome
        self._inbox: deque[D] = deque()
        self._outcomes: deque[tuple[D, oc.Outcome]] = deque()
        self._is_interrupted = False
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.tasks: set[asyncio.Task[None]] = set()
        self._current: D | None = None  # whose handler takes its first step
        self._waiting: dict[asyncio.Task[Any], D] = {}  # the messages whose handlers wait for something
        self._looking: set[asyncio.Task[None] | None] = set()  # those whose handler does not wait
        self._waits = True  # the last handler waited, so that one task is not enough for several messages
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

    def cancel(self, message: D) -> None:
        """Cancel the handler that runs on a message; it has its task alone."""
        for task, handled in self._waiting.items():
            if handled is message:
                task.cancel()

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
        """Begin as many tasks as the waiting messages need."""
        wanted = len(self._inbox) if self._waits else min(1, len(self._inbox))
        for _ in range(min(wanted - len(self._looking), self.count - len(self.tasks))):
            # By no factory of the program: an eager one would begin it before the next two lines.
            task = asyncio.Task(self._work(), loop=self._events, name="delayq-handler")
            self.tasks.add(task)
            self._looking.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._looking.discard(task)
        self._waiting.pop(task, None)
        self._begin()

    def _on_wait(self) -> None:
        """Let other tasks handle the next messages."""
        task = asyncio.current_task()
        if task is not None and self._current is not None:
            self._waiting[task] = self._current
        self._looking.discard(task)
        self._waits = True
        self._begin()

    async def _work(self) -> None:
        """Handle messages until a handler has waited, or none is left, or another task can handle them."""
        task = asyncio.current_task()
        assert task is not None
        until = time.perf_counter() + BURST_SECONDS
        while self._inbox and (self._waits or len(self._looking) == 1):
            message = self._inbox.popleft()
            task.set_name(f"delayq-{message.id}")
            await self._handle(message)
            self._on_outcome()
            must_cancel = getattr(task, "_must_cancel", False)  # despite `uncancel`, up to Python 3.12
            if task not in self._looking or task.cancelling() or must_cancel:
                return
            self._waits = False
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + BURST_SECONDS

    @coroutine
    def _handle(self, message: D) -> Generator[Any, Any, None]:
        if self._is_interrupted or not self._may_start(message):
            self._outcomes.append((message, oc.RELEASED))
            return
        outcome: oc.Outcome = oc.INTERRUPTED
        started = time.perf_counter()
        try:
            own = copy_context()
            own.run(running.set, message)
            self._current = message
            returned = yield from fork_guard.steps(self._choose(message), message, own.run, self._on_wait)
            if not self._is_interrupted:  # otherwise it may have swallowed the cancel, and its work may not be done
                outcome = oc.DONE if returned is None else oc.of_return(returned)
        except asyncio.CancelledError as error:
            if not self._is_interrupted:  # it comes from within the handler
                outcome = oc.of_error(error, message)
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: a handler must not end its consumer
            failed = oc.of_error(error, message)
            if not (self._is_interrupted and isinstance(failed, oc.Failed)):  # drivers may turn a cancel into an error
                outcome = failed
        self._current = None
        self.times.note(time.perf_counter() - started, self._own_times)
        self._outcomes.append((message, outcome))
