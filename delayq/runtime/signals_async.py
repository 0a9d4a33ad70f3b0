"""SIGTERM, SIGINT and SIGHUP, for all consumers that run on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Protocol

from delayq.runtime.signals import Replaced

_runs: dict[asyncio.AbstractEventLoop, _Watch] = {}


class _Consumer(Protocol):
    @property
    def is_running(self) -> bool: ...
    def take_signal(self) -> None: ...


class _Watch:
    """The consumers that run on an event loop, and the signal handlers from before the first of them.

    The program's own handler is called at once, since it may stop a server on the same loop. Handlers that the program
    added to the event loop are called by the loop itself.

    Attributes:
        error: what the program's own handler raised, such as SystemExit, for the end of the last consumer.
    """

    def __init__(self, events: asyncio.AbstractEventLoop) -> None:
        self.consumers: list[_Consumer] = []
        self.notified: set[_Consumer] = set()  # by an earlier signal, perhaps a moment ago
        self.error: BaseException | None = None
        self._events = events
        self.replaced = Replaced(self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        running = [each for each in self.consumers if each.is_running]
        try:
            self.replaced.pass_on(number, frame)
        except BaseException as error:  # noqa: BLE001  # raised when the consumers have ended in good order
            self.error = self.error or error
        if self.consumers:  # otherwise the loop may be closed, and somebody has put this handler back
            self._events.call_soon_threadsafe(self._stop_all, running)

    def _stop_all(self, running: Collection[_Consumer]) -> None:
        """Tell the consumers, except those that ran when the signal came and were notified by the program."""
        for each in list(self.consumers):
            if each.is_running or each not in running or each in self.notified:
                self.notified.add(each)
                each.take_signal()


@contextlib.contextmanager
def watched(consumer: _Consumer) -> Iterator[None]:
    """Tell a consumer of SIGTERM, SIGINT and SIGHUP, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    events = asyncio.get_running_loop()
    watch = _runs.setdefault(events, _Watch(events))
    if not watch.consumers:
        watch.replaced.replace()
    watch.consumers.append(consumer)
    try:
        yield
    finally:
        watch.consumers.remove(consumer)
        watch.notified.discard(consumer)
        if not watch.consumers:
            del _runs[events]
            watch.replaced.restore()
    if not watch.consumers and watch.error is not None:
        raise watch.error
