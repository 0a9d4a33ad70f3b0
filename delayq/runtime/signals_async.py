"""SIGTERM, SIGINT and SIGHUP, for all consumers that run on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from delayq.runtime.signals import Replaced

_runs: dict[asyncio.AbstractEventLoop, _Watch] = {}


class _Watch:
    """The consumers that run on an event loop, and the signal handlers from before the first of them.

    Handlers that the application added to the event loop are called by the loop itself.
    """

    def __init__(self, events: asyncio.AbstractEventLoop) -> None:
        self.stops: list[Callable[[], None]] = []
        self._events = events
        self.replaced = Replaced(self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._events.call_soon_threadsafe(self._stop_all)
        self.replaced.pass_on(number, frame)

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
        watch.replaced.replace()
    watch.stops.append(stop)
    try:
        yield
    finally:
        watch.stops.remove(stop)
        if not watch.stops:
            del _runs[events]
            watch.replaced.restore()
