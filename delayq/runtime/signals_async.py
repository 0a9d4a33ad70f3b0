"""SIGTERM, SIGINT and SIGHUP, for all consumers that run on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from delayq.runtime.signals import ending

_runs: dict[asyncio.AbstractEventLoop, _Watch] = {}


class _Watch:
    """The consumers that run on an event loop, and the signal handlers from before the first of them.

    The event loop's own signal handlers belong to the application and are left alone.
    """

    def __init__(self, events: asyncio.AbstractEventLoop) -> None:
        self.stops: list[Callable[[], None]] = []
        self._events = events
        self._before: dict[signal.Signals, Any] = {}

    def begin(self) -> None:
        for number in ending():
            self._before[number] = signal.signal(number, self._tell)

    def end(self) -> None:
        for number, old in self._before.items():
            if signal.getsignal(number) == self._tell:  # nobody else has replaced the handler
                signal.signal(number, signal.SIG_DFL if old is None else old)

    def _tell(self, _number: int, _frame: FrameType | None) -> None:
        self._events.call_soon_threadsafe(self._stop_all)

    def _stop_all(self) -> None:
        for stop in list(self.stops):
            stop()


@contextlib.contextmanager
def watched(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for SIGTERM, SIGINT and SIGHUP, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    events = asyncio.get_running_loop()
    watch = _runs.setdefault(events, _Watch(events))
    if not watch.stops:
        watch.begin()
    watch.stops.append(stop)
    try:
        yield
    finally:
        watch.stops.remove(stop)
        if not watch.stops:
            del _runs[events]
            watch.end()
