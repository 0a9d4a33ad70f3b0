"""How consumers run: in the caller's thread or in their own, until they are stopped or a signal comes."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Protocol

from delayq import signals
from delayq.log import log
from delayq.model.units import Seconds
from delayq.runtime.consumer_run import Run
from delayq.runtime.consumer_state import ConsumerState
from delayq.runtime.hooks import call
from delayq.transport import trampoline


class ConsumerRun(Run, Protocol):
    """A run of a consumer of the sync API."""

    def connect(self) -> None: ...
    def close(self) -> None: ...
    def run(self, grace: Callable[[], float]) -> int: ...
    def runs_on(self, thread: threading.Thread) -> bool: ...


class Lifecycle(ConsumerState[ConsumerRun]):
    """What consumers have in common; each class makes its own runs."""

    _thread: threading.Thread | None = None
    _error: BaseException | None = None

    def _new_run(self) -> ConsumerRun:
        """Return a run that is connected and continues until it is stopped."""
        raise NotImplementedError

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
            self._end(run, timeout)
            if run.runs_on(threading.current_thread()):
                return
        if thread is not None:
            atexit.unregister(self.stop)
            thread.join()
            self._thread = None
            error, self._error = self._error, None
            if error is not None:
                raise error

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
        watch = signals.Watch(self.take_signal)
        try:
            with watch:
                handled = self._consume(run)
        finally:
            self._call_stops()  # another signal may end this
        watch.pass_on()
        return handled

    def _consume(self, run: ConsumerRun) -> int:
        self._note_start()
        try:
            with self._watching():
                return run.run(self._seconds_left)
        finally:
            self._note_end(run)

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
