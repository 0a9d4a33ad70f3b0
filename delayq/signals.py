"""Signals: which ones mean the end, who handles them for how long, and which handlers come back afterwards.

Other modules import `signal` only to name or send one. `watch_groups.py` and `keeper.py` run without delayq.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, Protocol, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object]

TERMINAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal or a service manager sends to end a program."""


def ending() -> list[signal.Signals]:
    """Return SIGTERM, SIGINT, and SIGHUP, unless the program handles or ignores that one, as under `nohup`."""
    hangs_up = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]


def name(number: int) -> str | None:
    """Return the name of a signal, such as SIGKILL; None if it has none."""
    return {each.value: each.name for each in signal.Signals}.get(number)


def raises_interrupt() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt: in the main thread, if nothing else handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def owner(number: int) -> Any:
    """Return the object whose method handles a signal, or None."""
    return getattr(signal.getsignal(number), "__self__", None)


# -- for a block, or from now on ---------------------------------------------------------------------------------------


@contextmanager
def handled(handler: Any, numbers: Iterable[int] | None = None) -> Generator[None]:
    """Let a function handle signals until the block ends; only in the main thread.

    Args:
        numbers: of the signals; None for `ending`.
    """
    before = {number: signal.signal(number, handler) for number in (ending() if numbers is None else numbers)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)  # None: a handler that Python did not install


@contextmanager
def stopping() -> Generator[threading.Event]:
    """Let the signals that mean the end set an event, and do nothing else, until the block ends."""
    stop = threading.Event()
    with handled(lambda *_: stop.set()):
        yield stop


def ignored(numbers: Iterable[int] | None = None) -> AbstractContextManager[None]:
    """Ignore signals until a `with` block ends, as in `handled`."""
    return handled(signal.SIG_IGN, numbers)


def interrupted(number: int) -> AbstractContextManager[None]:
    """Let a signal raise KeyboardInterrupt until a `with` block ends, as Ctrl-C does."""
    return handled(signal.default_int_handler, (number,))


@contextmanager
def blocked(numbers: Collection[int]) -> Generator[None]:
    """Let signals wait until the block ends; a process that is started meanwhile begins with them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore(numbers: Collection[int]) -> None:
    """Ignore signals in this process from now on, blocked ones too, but not in its subprocesses."""
    for number in numbers:  # not SIG_IGN, which subprocesses would inherit
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def reset(number: int) -> None:
    """Let a signal do what it does by default."""
    signal.signal(number, signal.SIG_DFL)


def _nothing(_number: int, _frame: object) -> None:
    pass


# -- for consumers -----------------------------------------------------------------------------------------------------


class Replaced:
    """The handlers of signals that consumers have replaced with `handler`, which passes signals on to them.

    Without that, a web server whose process runs a consumer would not be stopped by SIGTERM.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._before: dict[int, Any] = {}

    def replace(self) -> None:
        """Replace the handlers."""
        for number in ending():
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._handler)

    def pass_on(self, number: int, frame: FrameType | None = None) -> None:
        """Call the program's own handler, if it had one."""
        before = self._before.get(number)
        if callable(before) and not _interrupts(before):
            before(number, frame)

    def restore(self) -> None:
        """Restore the handlers, unless somebody else has replaced them since."""
        for number, old in self._before.items():
            if signal.getsignal(number) == self._handler:
                signal.signal(number, signal.SIG_DFL if old is None else old)


def _interrupts(handler: Any) -> bool:
    """Whether it is the handler of SIGINT of Python or `asyncio.run`, which would interrupt running handlers."""
    owner = getattr(handler.func, "__self__", None) if isinstance(handler, functools.partial) else None
    return handler is signal.default_int_handler or isinstance(owner, asyncio.Runner)


class Watch:
    """Calls a function for each signal that ends a consumer during a `with` block, if this is the main thread."""

    def __init__(self, take_signal: Callable[[], object]) -> None:
        self._take_signal = take_signal
        self._received: list[int] = []
        self._replaced = Replaced(self._handle)
        self._process = os.getpid()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._replaced.replace()

    def __exit__(self, *_: object) -> None:
        self._replaced.restore()

    def pass_on(self) -> None:
        """Call the program's own handlers for what was received; such a handler may end the process."""
        for number in dict.fromkeys(self._received):
            self._replaced.pass_on(number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child forked by a handler is not a consumer
            reset(number)
            os.kill(os.getpid(), number)
        else:
            self._received.append(number)
            self._take_signal()


class _Consumer(Protocol):
    @property
    def is_running(self) -> bool: ...
    def take_signal(self) -> None: ...


class _LoopWatch:
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
        """Stop the consumers, except those that ran when the signal came and that the program's own handler stopped."""
        for each in list(self.consumers):
            if each.is_running or each not in running or each in self.notified:
                self.notified.add(each)
                each.take_signal()


_loops: dict[asyncio.AbstractEventLoop, _LoopWatch] = {}


@contextmanager
def watched(consumer: _Consumer) -> Generator[None]:
    """Tell a consumer on the running event loop of the signals that end it, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    events = asyncio.get_running_loop()
    watch = _loops.setdefault(events, _LoopWatch(events))
    if not watch.consumers:
        watch.replaced.replace()
    watch.consumers.append(consumer)
    try:
        yield
    finally:
        watch.consumers.remove(consumer)
        watch.notified.discard(consumer)
        if not watch.consumers:
            del _loops[events]
            watch.replaced.restore()
    if not watch.consumers and watch.error is not None:
        raise watch.error
