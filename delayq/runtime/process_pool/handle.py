"""A process of a pool, as the pool sees it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any, Literal, TypeAlias

import msgspec

from delayq.errors import DelayqError, InvalidInput
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.runtime.process_pool import child
from delayq.runtime.process_pool.job import ProcessJob

REAP_SECONDS = 5.0  # for a process to be gone that was killed; or to run what its modules do at the exit
LOOK_SECONDS = 1.0  # between two looks at a process that runs: what it has forked may hold its end of the pipe open

# fork would copy locks that other threads hold; a fork server would see the environment as it was when that began.
Request: TypeAlias = Literal["settle", "extend"]
"""What a handler wants done about its message."""

_CONTEXT = multiprocessing.get_context("spawn")
_ONE_AT_A_TIME = threading.Lock()  # to start one also looks after those that have ended


class CannotStart(Exception):
    """A process has ended before it could run a handler; the text tells why."""


class ProcessDied(Exception):
    """A process has ended while it ran a handler; the text tells how."""


class TookTooLong(Exception):
    """A handler has run for longer than it may."""


class RemoteTraceback(Exception):
    """Shows the traceback of an error in another process, as text."""

    def __str__(self) -> str:
        return f"in its process\n{self.args[0]}"


def check_program() -> None:
    """Raise InvalidInput in a process that still imports the program which has started it: it would start others.

    Python has a RuntimeError for that; but it comes when a process is started, on a thread, after the run has begun.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidInput(
            'a process imports the program that has started it, and came upon a consumer with pool="process": put what '
            'the program does under `if __name__ == "__main__":`'
        )


class WorkerProcess:
    """Runs a handler on one message at a time. All but `kill` is for one thread.

    Args:
        job: what it is to do.
        ask: is called with what the handler wants done about its message (a request, the message, an argument).
    """

    def __init__(self, job: ProcessJob, ask: Callable[[Request, Any, Any], object]) -> None:
        self._ask = ask
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=child.main, args=(job, theirs), name="delayq-process")
        try:
            with _ONE_AT_A_TIME, _signals_blocked():
                self._process.start()
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()
        self._is_closed = False
        self.pid: int = self._process.pid or 0

    def is_ready(self, seconds: float) -> bool:
        """Wait for up to `seconds` until it has imported what it needs.

        Raises:
            CannotStart: it has not come that far.
        """
        try:
            if not self._pipe.poll(seconds):
                return False
            word, *told = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise CannotStart(f"{self._how()} before it was ready") from error
        if word == child.FAILED:
            raise CannotStart(told[0]) from RemoteTraceback(told[1])
        return True

    def run(self, message: Delivery[Any], seconds: float | None) -> oc.Outcome:
        """Run the handler on a message.

        Args:
            seconds: that it may take; None for ever.

        Raises:
            CannotStart: it has ended before it was given the message.
            ProcessDied: it has ended meanwhile.
            TookTooLong: it runs on: kill it.
        """
        end = None if seconds is None else time.monotonic() + seconds
        fields = msgspec.structs.astuple(message)[1:-1]  # but for whose it is, and the payload, which is read there
        try:
            self._pipe.send_bytes(pickle.dumps((message.queue, *fields)))
        except ConnectionError as error:
            raise CannotStart(f"{self._how()} while it had nothing to do") from error
        try:
            while True:
                self._await_word(end)
                word, *told = pickle.loads(self._pipe.recv_bytes())
                if word == child.DONE:
                    return _outcome(*told)
                self._pipe.send_bytes(self._answer(message, *told))
        except (EOFError, OSError) as error:
            raise ProcessDied(self._how()) from error

    def kill(self) -> None:
        """Kill it, and what it has started, now; nothing happens if it has ended."""
        with _ONE_AT_A_TIME:
            if self._is_closed or self._process.exitcode is not None:
                return  # the number may be another one's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has no group yet
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()

    def end(self) -> None:
        """Let it end by itself, or kill it when it does not do so soon."""
        self._pipe.close()
        if not self._reaped(REAP_SECONDS):
            self.kill()
            if not self._reaped(REAP_SECONDS):
                return  # nothing ends it: it waits for a disk that does not answer
        with _ONE_AT_A_TIME:
            self._is_closed = True
            self._process.close()

    def _await_word(self, end: float | None) -> None:
        """Wait until it says something, or ends; raises TookTooLong at `end`."""
        while not self._pipe.poll(LOOK_SECONDS if end is None else max(0.0, min(end - time.monotonic(), LOOK_SECONDS))):
            if self._has_ended():
                raise EOFError
            if end is not None and time.monotonic() >= end:
                raise TookTooLong

    def _answer(self, message: Delivery[Any], request: Request, packed: bytes) -> bytes:
        """Do what the handler asks for; return the message's lease, or the error that it is to raise."""
        try:
            self._ask(request, message, pickle.loads(packed))
        except DelayqError as error:
            return pickle.dumps((None, error))
        except Exception as error:  # noqa: BLE001  # of a class of the handler's that is not found here, for one
            return pickle.dumps((None, InvalidInput(f"not done: {oc.error_text(error)}")))
        return pickle.dumps(((round(message.lease_until.timestamp() * 1000), message.held_until), None))

    def _how(self) -> str:
        """Return how the process has ended."""
        code = self._process.exitcode if self._reaped(REAP_SECONDS) else None
        if code is None:
            return "its process has closed the pipe"
        return f"its process ended with exit code {code}" if code >= 0 else f"its process was killed by {_name(-code)}"

    def _reaped(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        wait([self._process.sentinel], seconds)  # which may be a moment before its end, as the kernel counts it
        while not self._has_ended():
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)
        return True

    def _has_ended(self) -> bool:
        with _ONE_AT_A_TIME:
            return self._process.exitcode is not None


def _outcome(packed: bytes, trace: str | None, packed_cause: bytes | None) -> oc.Outcome:
    try:
        outcome: oc.Outcome = pickle.loads(packed)
    except Exception as error:  # noqa: BLE001  # of a class of the handler's that is not found here
        return oc.Failed(error=f"what the handler returned cannot be read outside its process: {oc.error_text(error)}")
    if isinstance(outcome, oc.Failed) and trace is not None:
        return replace(outcome, cause=_cause(RemoteTraceback(trace), packed_cause))
    return outcome


def _cause(traceback: RemoteTraceback, packed: bytes | None) -> BaseException:
    """Return what the handler has raised, or only its traceback where it cannot be read here."""
    try:
        cause = pickle.loads(packed or b"")
    except Exception:  # noqa: BLE001  # of a class that is not found here, or takes other arguments than it keeps
        return traceback
    if not isinstance(cause, BaseException):
        return traceback
    cause.__cause__ = traceback
    return cause


def _name(number: int) -> str:
    return {each.value: each.name for each in signal.Signals}.get(number, f"signal {number}")


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Start what begins with these blocked: Ctrl-C would end it before it could say that it wants none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, child.TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
