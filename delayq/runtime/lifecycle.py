"""How consumers run: in the caller's thread or in their own, until they are stopped or a signal comes."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Protocol

from delayq.errors import InvalidInput
from delayq.log import log
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_group_name
from delayq.runtime import signals
from delayq.runtime.hooks import Hooks, call
from delayq.transport import trampoline


def consumer_name(token: str) -> str:
    """Return the name of a consumer of this process that was not given one."""
    return f"{socket.gethostname()}-{os.getpid()}-{token}"


class ConsumerRun(Protocol):
    """A run of a consumer."""

    @property
    def handled(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def abandoned(self) -> int: ...
    @property
    def is_stopping(self) -> bool: ...
    @property
    def turns_by(self) -> float: ...
    def connect(self) -> None: ...
    def close(self) -> None: ...
    def run(self, grace: Callable[[], float]) -> int: ...
    def stop(self, at_once: bool = False, by_signal: bool = False) -> None: ...
    def runs_on(self, thread: threading.Thread) -> bool: ...


class Lifecycle:
    """What consumers have in common; each class makes its own runs.

    Args:
        name: None for host, process and a random part.
        hooks: called at the start and at the end of a run.
    """

    def __init__(self, name: str | None, concurrency: int, shutdown_timeout: Seconds, hooks: Hooks) -> None:
        # A topic's group drops consumers with names of this form that were killed: see `topics.settle.NAMELESS`.
        self.name = consumer_name(secrets.token_hex(3)) if name is None else check_group_name(name, "consumer name")
        self._concurrency = concurrency
        self._hooks = hooks
        self._grace = milliseconds(shutdown_timeout, "shutdown_timeout") / 1000
        self._current: ConsumerRun | None = None
        self._this_grace: float | None = None  # of `stop`, for the current run
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._handled = self._failed = 0  # in earlier runs
        self.abandoned = 0

    @property
    def handled(self) -> int:
        return self._handled + (self._current.handled if self._current else 0)

    @property
    def failed(self) -> int:
        return self._failed + (self._current.failed if self._current else 0)

    @property
    def is_running(self) -> bool:
        """Whether it is consuming and was not told to stop."""
        run = self._current
        return run is not None and not run.is_stopping

    @property
    def stalled(self) -> float:
        """How many seconds its run is late with its next step: almost 0 while it works; 0 while it does not run.

        A run whose server is away is not late; a run whose event loop is blocked by a handler is.
        """
        run = self._current
        return 0.0 if run is None else max(0.0, time.monotonic() - run.turns_by)

    @property
    def _labels(self) -> dict[str, str]:
        """The fields of its log lines."""
        raise NotImplementedError

    def _new_run(self) -> ConsumerRun:
        """Return a run that is connected and continues until it is stopped."""
        raise NotImplementedError

    def _watching(self) -> AbstractContextManager[object]:
        return nullcontext()

    def start(self) -> None:
        """Consume on a separate thread until `stop`, or until the program ends.

        Raises:
            ServerError: the first connection failed; later losses are retried.
            StartFailed: a `Middleware.on_start` function failed.
        """
        run = self._new_run()
        self._thread = threading.Thread(target=self._consume_apart, args=(run,), name="delayq-consumer", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def stop(self, timeout: Seconds | None = None) -> None:
        """End `start` or `run`: finish running handlers, hand back unstarted messages, and wait for `start` to end.

        Called by a handler, it does not wait, since that handler must finish first.

        Args:
            timeout: how long running handlers may take; None for the shutdown timeout.

        Raises:
            DelayqError: the error that ended the thread of `start` before.
        """
        run, thread = self._current, self._thread
        if run is not None:
            self._this_grace = None if timeout is None else milliseconds(timeout, "timeout") / 1000
            run.stop()
            if run.runs_on(threading.current_thread()):
                return
        if thread is not None:
            atexit.unregister(self.stop)
            thread.join()
            self._thread = None
            error, self._error = self._error, None
            if error is not None:
                raise error

    def take_signal(self) -> None:
        """Act as on SIGTERM: end `run` soon; the second time at once, leaving messages to their leases.

        It may be called from any thread, and from a signal handler.
        """
        run = self._current
        if run is not None:
            run.stop(at_once=run.is_stopping, by_signal=True)

    def _check_idle(self) -> None:
        if self._current is not None:
            raise InvalidInput(f"consumer {self.name} is already running: stop it first, or make another one")

    def _connect(self, run: ConsumerRun) -> None:
        run.connect()
        try:
            trampoline.run(self._hooks.starting(self), call)
        except BaseException:
            run.close()
            raise
        self._current, self._this_grace = run, None

    def _run(self, run: ConsumerRun) -> int:
        """Execute a run in this thread, and handle signals if it is the main thread."""
        received: list[int] = []
        replaced = signals.Replaced(self._signal_handler(received))
        if threading.current_thread() is threading.main_thread():
            replaced.replace()
        try:
            handled = self._consume(run)
        finally:
            replaced.restore()
            self._call_stops()  # another signal may end this
        for number in dict.fromkeys(received):  # not before: such a handler may end the process
            replaced.pass_on(number)
        return handled

    def _consume(self, run: ConsumerRun) -> int:
        log.info("consumer started", **self._labels, concurrency=self._concurrency)
        try:
            with self._watching():
                return run.run(lambda: self._grace if self._this_grace is None else self._this_grace)
        finally:
            self._handled, self._failed, self.abandoned = self.handled, self.failed, run.abandoned
            self._current = None
            log.info("consumer stopped", **self._labels, handled=run.handled)

    def _consume_apart(self, run: ConsumerRun) -> None:
        try:
            self._consume(run)
        except BaseException as error:  # noqa: BLE001  # `stop` raises it
            log.error("consumer failed", **self._labels, error=repr(error))
            self._error = error
        finally:
            self._call_stops()

    def _call_stops(self) -> None:
        trampoline.run(self._hooks.stopping(self), call)

    def _signal_handler(self, received: list[int]) -> signals.Handler:
        process = os.getpid()

        def stop(number: int, _frame: FrameType | None) -> None:
            if os.getpid() != process:  # a child forked by a handler is not a consumer
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            else:
                received.append(number)
                self.take_signal()

        return stop
