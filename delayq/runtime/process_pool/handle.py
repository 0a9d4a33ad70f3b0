"""A process of a pool, as the pool sees it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any, Literal, TypeAlias

import msgspec

from delayq import signals
from delayq.errors import DelayqError, InvalidInput
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.outcome import RemoteTraceback
from delayq.runtime.group_watcher import GroupWatcher
from delayq.runtime.process_pool import child
from delayq.runtime.process_pool.job import ProcessJob

REAP_SECONDS = 5.0  # for a killed process to be gone, or for the exit handlers of an ending one
STOP_SECONDS = 0.5  # between SIGTERM and SIGKILL, if a message is cancelled
LOOK_SECONDS = 1.0  # between two checks that a process lives: one that it has forked may keep its pipe open

# fork would copy locks that other threads hold; a fork server would keep the environment that it started with.
Request: TypeAlias = Literal["settle", "extend", "report"]
"""What a handler can ask for its message."""

_CONTEXT = multiprocessing.get_context("spawn")
_WATCHER = GroupWatcher()  # for subprocesses of handlers that ignore the signal which ends their group
_ONE_AT_A_TIME = threading.Lock()  # starting a process also reaps those that have ended


class CannotStart(Exception):
    """A process ended before it could run a handler; the text says why."""


class ProcessDied(Exception):
    """A process ended while it ran a handler; the text says how."""


class TookTooLong(Exception):
    """A handler exceeded its time limit."""


def check_program() -> None:
    """Raise InvalidInput in a process that is still importing the program that started it: it would start others.

    Python raises a RuntimeError for that, but only when a process is started, on a thread, after the run has begun.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidInput(
            'a pool process imports your program, and this ran a consumer with pool="process" again: put what the '
            'program does under `if __name__ == "__main__":`'
        )


class WorkerProcess:
    """Runs a handler on one message at a time. Only one thread may use it, except for `stop` and `kill`.

    Args:
        job: the handler and what it needs.
        ask: called with what a handler asks for its message: a request, the message, an argument.

    Attributes:
        is_stopped: it was asked to end, so no other message may be given to it.
    """

    def __init__(self, job: ProcessJob, ask: Callable[[Request, Any, Any], object]) -> None:
        self._ask = ask
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=child.main, args=(job, theirs), name="delayq-process")
        try:
            # Ctrl-C would end the process before it could ignore that.
            with _ONE_AT_A_TIME, signals.blocked(signals.TERMINAL):
                self._process.start()
                _WATCHER.watch(self._process.pid or 0)
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()
        self.is_stopped = False
        self._is_closed = False
        self.pid: int = self._process.pid or 0

    def is_ready(self, seconds: float) -> bool:
        """Wait for up to `seconds` until it has imported what it needs.

        Raises:
            CannotStart: it ended before that.
        """
        try:
            if not self._pipe.poll(seconds):
                return False
            word, *details = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise CannotStart(f"{self._how()} before it was ready") from error
        if word == child.FAILED:
            raise CannotStart(details[0]) from RemoteTraceback(details[1])
        return True

    def run(self, message: Delivery[Any], seconds: float | None) -> oc.Outcome:
        """Run the handler on a message.

        Args:
            seconds: its time limit; None for no limit.

        Raises:
            CannotStart: the process ended before it got the message.
            ProcessDied: the process ended meanwhile.
            TookTooLong: the process is still running: kill it.
        """
        end = None if seconds is None else time.monotonic() + seconds
        # Without the owner, the process that it was handed to, and the payload, which is parsed there.
        fields = msgspec.structs.astuple(message)[2:-1]
        try:
            self._pipe.send_bytes(pickle.dumps((message.queue, *fields)))
        except ConnectionError as error:
            raise CannotStart(f"{self._how()} while it was idle") from error
        try:
            while True:
                self._await_word(end)
                word, *details = pickle.loads(self._pipe.recv_bytes())
                if word == child.DONE:
                    return _outcome(*details)
                self._pipe.send_bytes(self._answer(message, *details))
        except (EOFError, OSError) as error:
            how = self._how()
            with contextlib.suppress(ProcessLookupError, PermissionError):  # what the handler has started
                os.killpg(self.pid, signal.SIGKILL)
            raise ProcessDied(how) from error

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        with _ONE_AT_A_TIME:
            return self._process.exitcode is not None

    def stop(self) -> None:
        """Let it and its subprocesses end, and kill them soon if they do not."""
        self.is_stopped = True
        self._signal(signal.SIGTERM)
        timer = threading.Timer(STOP_SECONDS, self.kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        """Kill it and its subprocesses now; do nothing if it has ended."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with _ONE_AT_A_TIME:
            if self._is_closed or self._process.exitcode is not None:
                return  # the number may belong to another process by now
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has no group yet
                os.killpg(self.pid, number)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self) -> None:
        """Let it end by itself, or kill it if it does not end soon."""
        self._pipe.close()
        if not self._reaped(REAP_SECONDS):
            self.kill()
            if not self._reaped(REAP_SECONDS):
                return  # even a kill does not end it: it waits for a disk that does not answer
        with _ONE_AT_A_TIME:
            self._is_closed = True
            self._process.close()
            _WATCHER.forget(self.pid)

    def _await_word(self, end: float | None) -> None:
        """Wait until it sends something or ends; raise TookTooLong at `end`."""
        while not self._pipe.poll(LOOK_SECONDS if end is None else max(0.0, min(end - time.monotonic(), LOOK_SECONDS))):
            if self.has_ended():
                raise EOFError
            if end is not None and time.monotonic() >= end:
                raise TookTooLong

    def _answer(self, message: Delivery[Any], request: Request, packed: bytes) -> bytes:
        """Do what the handler asks for; return the message's lease, or the error to raise in the handler."""
        try:
            self._ask(request, message, pickle.loads(packed))
        except DelayqError as error:
            return pickle.dumps((None, error))
        except BaseException as error:  # noqa: BLE001  # such as a class of the handler that cannot be imported here
            return pickle.dumps((None, InvalidInput(f"not done: {oc.error_text(error)}")))
        return pickle.dumps(((round(message.lease_until.timestamp() * 1000), message.held_until), None))

    def _how(self) -> str:
        """Describe how the process ended."""
        code = self._process.exitcode if self._reaped(REAP_SECONDS) else None
        if code is None:
            return "its process has closed the pipe"
        if code < 0:
            return f"its process was killed by {signals.name(-code) or f'signal {-code}'}"
        return f"its process ended with exit code {code}"

    def _reaped(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        wait([self._process.sentinel], seconds)  # it may return a moment before the process has ended
        while not self.has_ended():
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)
        return True


def _outcome(packed: bytes, trace: str | None, packed_cause: bytes | None) -> oc.Outcome:
    try:
        outcome: oc.Outcome = pickle.loads(packed)
    except BaseException as error:  # noqa: BLE001  # such as a class of the handler that cannot be imported here
        return oc.Failed(error=f"what the handler returned cannot be read outside its process: {oc.error_text(error)}")
    if isinstance(outcome, oc.Failed | oc.Dead) and trace is not None:
        return replace(outcome, cause=_cause(RemoteTraceback(trace), packed_cause))
    return outcome


def _cause(traceback: RemoteTraceback, packed: bytes | None) -> BaseException:
    """Return the handler's exception, or only its traceback if the exception cannot be unpickled here."""
    try:
        cause = pickle.loads(packed or b"")
    except BaseException:  # noqa: BLE001  # a class that cannot be imported here, or whose arguments differ from its args
        return traceback
    if not isinstance(cause, BaseException):
        return traceback
    cause.__cause__ = traceback
    return cause
