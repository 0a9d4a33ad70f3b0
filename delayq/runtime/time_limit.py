"""Handlers that run for longer than they are to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from delayq.log import log, log_of
from delayq.model.delivery import Delivery, Handed
from delayq.model.outcome import is_coroutine_function

Subject: TypeAlias = Handed | list[Delivery[Any]]
"""What a handler is called with: a message, a record, or a batch."""


class TimeLimit:
    """Tells of handlers that run for longer than their time; an async one is cancelled, which fails its delivery.

    Nobody can end a thread from outside: such a handler goes on, under its lease, and its place is taken until it
    ends. So it is logged and counted once, in time, and logged again when it ends.

    Args:
        seconds: how long a handler may run.

    Attributes:
        seconds: how long a handler may run.
        count: deliveries whose handler ran longer, so far.
    """

    def __init__(self, seconds: float) -> None:
        self.count = 0
        self.seconds = seconds
        self._running: dict[object, tuple[Subject, float]] = {}  # since when; the one that began first is first

    def wrap(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a handler that is watched; of an async one, one that is cancelled and raises TimeoutError."""
        if is_coroutine_function(handler):

            async def handle_async(message: Any) -> Any:
                limit = asyncio.timeout(self.seconds)
                try:
                    async with limit:
                        return await handler(message)
                except TimeoutError:
                    if not limit.expired():  # the handler's own
                        raise
                    self.count += _count(message)
                    raise TimeoutError(f"the handler took longer than {self.seconds:g} s: cancelled") from None

            return handle_async

        def handle(message: Any) -> Any:
            run, begin = object(), time.monotonic()
            self._running[run] = message, begin
            try:
                return handler(message)
            finally:
                if self._running.pop(run, None) is None:
                    took = round(time.monotonic() - begin, 3)
                    _line(message).warning("handler ended after its time", took=took, timeout=self.seconds)

        return handle

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at what runs, on a thread of its own."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), name="delayq-time-limit", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(self._look()):
            pass

    def _look(self) -> float:
        """Tell of what runs over; return the seconds until something else may."""
        for run, (message, begin) in self._running.copy().items():
            left = begin + self.seconds - time.monotonic()
            if left > 0:
                return left
            if self._running.pop(run, None) is not None:
                _line(message).warning(
                    "handler runs for longer than its time: it cannot be ended, and keeps its place",
                    timeout=self.seconds,
                )
                self.count += _count(message)
        return self.seconds  # what begins from now on has so long


def _count(subject: Subject) -> int:
    return len(subject) if isinstance(subject, list) else 1


def _line(subject: Subject) -> Any:
    """Return a logger whose lines tell what a handler runs on."""
    if isinstance(subject, list):
        return log.bind(queue=subject[0].queue, ids=[message.id for message in subject[:3]], messages=len(subject))
    return log_of(subject)
