"""The end of a run, for a stop and for an error alike.

It takes nothing new, waits for running handlers, interrupts those that do not end in time, and settles what is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from delayq.log import log_of
from delayq.model.delivery import Handed
from delayq.model.interval import FALLBACK_MS
from delayq.model.outcome import error_text
from delayq.runtime.effects import Effects, WaitForWork
from delayq.runtime.handler_pool import HandlerPool
from delayq.runtime.outage_backoff import OutageBackoff

INTERRUPTED_SECONDS = 1.0  # for interrupted handlers to end
LONGEST_CALL = 5.5  # seconds: a little more than the socket's own timeout
LEAST_PATIENCE = 0.5  # seconds, even after the deadline
MARGIN_SECONDS = 1.0  # kept for what follows a call without an answer


class Shutdown:
    """Whether a run should end, and how fast; any thread or signal handler may request it at any moment.

    Attributes:
        is_requested: the run should end soon.
        at_once: running messages are left to their leases.
        by_signal: a signal has requested it; another one ends the run at once.
        deadline: of the wait for running handlers, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.is_requested = self.at_once = self.by_signal = False
        self.deadline = 0.0

    def request(self, at_once: bool = False, by_signal: bool = False) -> None:
        """End the run soon."""
        self.by_signal = self.by_signal or by_signal
        self.at_once = self.at_once or at_once
        self.is_requested = True

    def patience(self) -> float:
        """Return how many seconds the server may take to answer, so that a silent one does not hold up the end."""
        left = self.deadline - time.monotonic() - MARGIN_SECONDS if self.deadline else LONGEST_CALL
        return max(LEAST_PATIENCE, min(LONGEST_CALL, left))

    @property
    def is_late(self) -> bool:
        """Whether the time to wait is over."""
        return self.at_once or time.monotonic() >= self.deadline


def log_interrupted(subject: Handed) -> None:
    """Log that the message of a running handler is handed back."""
    log_of(subject).warning("message handed back at shutdown")


class Running(Protocol):
    """An engine that takes turns."""

    shutdown: Shutdown
    outage: OutageBackoff

    @property
    def unfinished(self) -> int: ...
    @property
    def is_burst(self) -> bool: ...
    def on_outage(self) -> None: ...


class Finishing(Running, Protocol):
    """An engine whose handlers may still be running."""

    pool: HandlerPool[Any]

    @property
    def has_unsettled(self) -> bool: ...
    def collect_outcomes(self) -> None: ...
    def settle(self) -> Effects[None]: ...
    def report(self) -> Effects[None]: ...


def run(
    engine: Running,
    turn: Callable[[], Effects[None]],
    end: Callable[[], Effects[None]],
    grace: Callable[[], float],
    labeled: Any,
) -> Effects[None]:
    """Let an engine take turns until it is stopped or a turn fails with an error that does not pass; then end the run.

    Args:
        end: the last steps of the engine, which settle what it holds.
        grace: returns how many seconds running handlers get at the end.
        labeled: a logger whose lines name the queue or topic.

    Raises:
        BaseException: the error that ended the run, once what the handlers have done is settled.
    """
    shutdown, ended_by = engine.shutdown, None
    try:
        while not shutdown.is_requested:
            yield from engine.outage.ride_out(turn(), engine.on_outage, engine.is_burst)
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001  # raised below
        ended_by = error
        shutdown.is_requested = True
        labeled.error("consumer stops after an error", error=error_text(error), running=engine.unfinished)
    shutdown.deadline = time.monotonic() + grace()
    try:
        yield from end()
    except Exception as error:
        if ended_by is None:
            raise
        labeled.warning("consumer did not end in good order", error=error_text(error))
    if ended_by is not None:
        raise ended_by


def finish(engine: Finishing, labeled: Any) -> Effects[None]:
    """Wait for running handlers, settle their outcomes, and interrupt those that do not end in time.

    Args:
        labeled: a logger whose lines name the queue or topic.
    """
    shutdown = engine.shutdown
    if engine.unfinished and shutdown.by_signal and not shutdown.at_once:
        hint = "press Ctrl-C again to abandon them"
        labeled.info("waiting for running handlers", running=engine.unfinished, hint=hint)
    while True:
        engine.collect_outcomes()
        if engine.has_unsettled:
            yield from engine.outage.ride_out(engine.settle(), engine.on_outage)
        if shutdown.is_late or not (engine.unfinished or engine.has_unsettled):
            break
        if not engine.has_unsettled:  # otherwise a try failed, and its pause is over: try again
            yield from engine.report()
            yield WaitForWork(min(shutdown.deadline - time.monotonic(), FALLBACK_MS / 1000))
    if engine.pool.interrupt() and not shutdown.at_once:
        end = time.monotonic() + INTERRUPTED_SECONDS
        while engine.unfinished and (left := end - time.monotonic()) > 0:
            yield WaitForWork(left)
            engine.collect_outcomes()
