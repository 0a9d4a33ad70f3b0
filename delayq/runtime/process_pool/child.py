"""Runs in a process of a pool: handles one message after the other, until the pool is gone."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from delayq import signals
from delayq.errors import InvalidInput, StaleReceipt
from delayq.log import own_frames
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery, check_process
from delayq.model.handler_progress import EVERY_SECONDS, HandlerProgress
from delayq.model.message import Message
from delayq.model.units import Seconds
from delayq.runtime.fork_guard import flush
from delayq.runtime.process_pool.job import ProcessJob

READY, FAILED, ASKS, DONE = "ready", "failed", "asks", "done"
"""The words with which a process begins its replies."""

MAX_TRACE = 20_000  # characters, of the end of a traceback
MAX_CAUSE = 65536  # bytes of an error that the consumer's backoff may see


def main(job: ProcessJob, pipe: Connection) -> None:
    """Run the handler on the messages that come through the pipe, until it is closed."""
    import structlog  # noqa: F401, PLC0415  # here, so that consumers without processes need not, nor a first message

    _settle_in()
    try:
        try:
            handle = job.unpack()
        except BaseException as error:  # noqa: BLE001  # SystemExit, too, from a module
            pipe.send_bytes(pickle.dumps((FAILED, oc.error_text(error), _trace(error))))
            return
        pipe.send_bytes(pickle.dumps((READY,)))
        while True:
            name, *fields = pickle.loads(pipe.recv_bytes())
            owner = Owner(name, pipe)
            answer = _run(handle, Message(owner, os.getpid(), *fields))
            flush()
            owner.end(answer)
    except (EOFError, ConnectionError):  # the pool has ended, or is gone
        return


class Owner:
    """Takes the place of the queue for a message, and forwards its calls to the pool.

    So a process needs no connection, and the pool learns at once what has happened to the message.
    """

    def __init__(self, name: str, pipe: Connection) -> None:
        self.name = name
        self._pipe = pipe
        self._lock = threading.Lock()  # a handler may have threads
        self._is_over = False

    def settle(self, message: Delivery[Any], outcome: oc.Outcome) -> None:
        """Settle a delivery; raise what `Queue.settle` raises."""
        check_process([message])
        self._ask("settle", replace(outcome, cause=None) if isinstance(outcome, oc.Failed) else outcome)
        oc.mark(message, outcome)

    def extend(self, message: Delivery[Any], seconds: Seconds) -> None:
        """Let a delivery's lease end `seconds` from now; raise what `Queue.extend` raises."""
        check_process([message])
        lease_ms, message.held_until = self._ask("extend", seconds)
        message.leased_until(lease_ms)

    def report(self, message: Delivery[Any], progress: HandlerProgress) -> None:
        """Note how far the handler is; raise what `Queue.report` raises."""
        check_process([message])
        if (now := time.monotonic()) >= message.next_report:
            message.next_report = now + EVERY_SECONDS
            self._ask("report", progress)

    def end(self, answer: bytes) -> None:
        """Send the outcome of the message; from then on, threads of its handler cannot ask for anything."""
        with self._lock:
            self._is_over = True
            self._pipe.send_bytes(answer)

    def _ask(self, verb: str, argument: object) -> Any:
        try:
            asked = pickle.dumps((ASKS, verb, pickle.dumps(argument)))
        except Exception as error:
            raise InvalidInput(f"{argument!r} cannot be sent out of its process: {error}") from error
        with self._lock:
            if self._is_over:
                raise StaleReceipt("the handler of the message has ended; nothing was changed")
            self._pipe.send_bytes(asked)
            answer, refusal = pickle.loads(self._pipe.recv_bytes())
        if refusal is not None:
            raise refusal
        return answer


def _run(handle: Callable[[Any], Any], message: Message) -> bytes:
    import structlog  # noqa: PLC0415  # see `main`

    with structlog.contextvars.bound_contextvars(queue=message.queue, id=message.id, attempt=message.attempt):
        try:
            outcome = oc.of_return(handle(message))
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: a handler must not end its process
            outcome = oc.of_error(error, message)
    trace = cause = None
    if isinstance(outcome, oc.Done):
        if not isinstance(outcome.value, oc.KeptValue):
            outcome = oc.DONE  # nobody needs the value, which may be one that cannot be pickled
    elif isinstance(outcome, oc.Failed | oc.Dead) and outcome.cause is not None:
        trace, cause, outcome = _trace(outcome.cause), _packed(outcome.cause), replace(outcome, cause=None)
    try:
        return pickle.dumps((DONE, pickle.dumps(outcome), trace, cause))
    except BaseException as error:  # noqa: BLE001  # follow-up messages may hold any objects
        text = f"what the handler returned cannot be sent out of its process: {oc.error_text(error)}"
        return pickle.dumps((DONE, pickle.dumps(oc.Failed(error=text)), None, None))


def _settle_in() -> None:
    """Let only the pool end this process, and end this process if the pool dies."""
    # A separate process group: Ctrl-C reaches only the pool, and a handler's subprocesses end with its process.
    os.setpgid(0, 0)
    signals.ignore(signals.TERMINAL)
    parent = parent_process()
    assert parent is not None, "this runs in a process of a pool"
    # When the pool's end of this pipe is closed, the kernel sends the group a signal that ends it by default. A thread
    # that waits for that would not run while a handler holds Python's lock.
    signals.reset(signal.SIGIO)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, fcntl.fcntl(parent.sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if not parent.is_alive():  # it died before the line above
        os._exit(1)


def _packed(error: BaseException) -> bytes | None:
    """Return an error pickled; None if it cannot be pickled, or is too large."""
    try:
        packed = pickle.dumps(error)
        return packed if len(packed) <= MAX_CAUSE else None
    except BaseException:  # noqa: BLE001  # it may hold any objects
        return None


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(*own_frames(error)))[-MAX_TRACE:]
    except BaseException:  # noqa: BLE001  # an error whose __str__ raises
        return oc.error_text(error)
