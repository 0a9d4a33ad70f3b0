"""Async queues, read from threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from delayq.aio import Queue
from delayq.errors import ServerUnreachable
from delayq.model.configuration import Usage
from delayq.model.queue_stats import QueueStats

SECONDS = 5.0  # in case a handler blocks the event loop

T = TypeVar("T")


class AsyncQueueReader:
    """Reads a queue on its event loop, for a waiting thread.

    Args:
        loop: returns the event loop, or None while it does not run.
    """

    def __init__(self, queue: Queue, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        self.name = queue.name
        self._queue = queue
        self._loop = loop

    def stats(self) -> QueueStats:
        """Count everything."""
        return self._wait(self._queue.stats)

    def consumers(self) -> Sequence[Any]:
        """Return the consumers."""
        return self._wait(self._queue.consumers)

    def usage(self) -> Usage:
        """Return how much of its limits it uses."""
        return self._wait(self._queue.usage)

    def _wait(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop = self._loop()
        if loop is None:
            raise ServerUnreachable(f"queue {self.name} cannot be read: its event loop does not run")
        asked = asyncio.run_coroutine_threadsafe(call(), loop)
        try:
            return asked.result(SECONDS)
        except TimeoutError as error:
            asked.cancel()
            raise ServerUnreachable(f"queue {self.name} was not read within {SECONDS:g} s") from error


class EventLoopThread:
    """An event loop on its own thread, started when first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="delayq-metrics-loop", daemon=True).start()
        return self._loop
