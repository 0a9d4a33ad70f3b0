"""The time limit of handlers."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from delayq.log import log, log_of
from delayq.model.delivery import Delivery, Handed
from delayq.model.outcome import is_coroutine_function

Subject: TypeAlias = Handed | list[Delivery[Any]]
"""A handler's argument: a message, a record, or a batch."""


class TimeLimit:
    """Reports handlers that exceed their time limit; an async one is cancelled, which fails its delivery.

    A thread cannot be stopped from outside: its handler continues, under its lease, and occupies its place until it
    ends. So it is logged and counted once when its time is over, and logged again when it ends.

    Attributes:
        seconds: how long a handler may run, unless its message says otherwise; None for no limit.
        count: deliveries whose handlers exceeded the limit so far.
    """

    def __init__(self, seconds: float | None) -> None:
        self.count = 0
        self.seconds = seconds
        self._running: dict[object, tuple[Subject, float, float]] = {}  # what, its limit in s, and until when
        self._over: dict[object, Subject] = {}  # what runs on after its limit
        self._wakes_at = math.inf  # when the thread looks next, unless it is called
        self._called = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_watching = False

    def of(self, subject: Subject) -> float | None:
        """Return how many seconds a handler may run on a message, a record or a batch; None for no limit."""
        own = subject.timeout if isinstance(subject, Delivery) else None
        return self.seconds if own is None else own

    def over(self, queue: str) -> int:
        """Return how many deliveries of a queue have handlers that run beyond their limit now."""
        return sum(_count(each) for each in [*self._over.values()] if _queue(each) == queue)

    def wrap(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a handler with its time limit; an async one is cancelled and raises TimeoutError."""
        if is_coroutine_function(handler):

            async def handle_async(message: Any) -> Any:
                seconds = self.of(message)
                if seconds is None:
                    return await handler(message)
                limit = asyncio.timeout(seconds)
                try:
                    async with limit:
                        return await handler(message)
                except TimeoutError:
                    if not limit.expired():  # the handler's own
                        raise
                    self.count += _count(message)
                    raise TimeoutError(f"the handler took longer than {seconds:g} s: cancelled") from None

            return handle_async

        usual = self.seconds

        def handle(message: Any) -> Any:
            own = getattr(message, "timeout", None)  # as `of` does, without a call for each message
            seconds = usual if own is None else own
            if seconds is None:
                return handler(message)
            run, begin = object(), time.monotonic()
            self._running[run] = message, seconds, begin + seconds
            if begin + seconds < self._wakes_at:
                self._call()
            try:
                return handler(message)
            finally:
                if self._running.pop(run, None) is None:
                    self._over.pop(run, None)
                    took = round(time.monotonic() - begin, 3)
                    _line(message).warning("handler ended after its time limit", took=took, timeout=seconds)

        return handle

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch running handlers on a separate thread, which starts with the first handler that has a limit."""
        self._is_watching, self._wakes_at = True, math.inf
        try:
            yield
        finally:
            with self._starting:
                self._is_watching = False
                thread, self._thread = self._thread, None
            if thread is not None:
                self._called.set()
                thread.join()

    def _call(self) -> None:
        """Let the thread look now."""
        self._wakes_at = -math.inf  # one call is enough
        with self._starting:
            if self._is_watching and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="delayq-time-limit", daemon=True)
                self._thread.start()
        self._called.set()

    def _watch(self) -> None:
        while self._is_watching:
            self._called.clear()
            self._wakes_at = math.inf  # handlers that begin from here on call, unless the look below sees them
            if not self._is_watching:
                return
            self._wakes_at = self._look()
            left = self._wakes_at - time.monotonic()
            self._called.wait(None if left == math.inf else max(0.0, left))

    def _look(self) -> float:
        """Report handlers over their limit; return when the next may be, on the monotonic clock."""
        now, first = time.monotonic(), math.inf
        for run, (message, seconds, end) in self._running.copy().items():
            if end > now:
                first = min(first, end)
                continue
            self._over[run] = message  # before it leaves `_running`: its handler may end at any moment
            if self._running.pop(run, None) is None:
                self._over.pop(run, None)
            else:
                _line(message).warning(
                    "handler exceeded its time limit",
                    timeout=seconds,
                )
                self.count += _count(message)
        return first


def _count(subject: Subject) -> int:
    return len(subject) if isinstance(subject, list) else 1


def _queue(subject: Subject) -> str | None:
    """Return the queue of a message or a batch; None for a record."""
    first = subject[0] if isinstance(subject, list) else subject
    return first.queue if isinstance(first, Delivery) else None


def _line(subject: Subject) -> Any:
    """Return a logger whose lines name a handler's message, record or batch."""
    if isinstance(subject, list):
        return log.bind(queue=subject[0].queue, ids=[message.id for message in subject[:3]], messages=len(subject))
    return log_of(subject)
