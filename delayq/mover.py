"""What makes the moves of a consumer's run on blocking connections, its handlers on threads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from delayq import bell
from delayq.calls import Steps
from delayq.clients import HURRIES
from delayq.connection import Connection
from delayq.moves import Moves, Pause, Rest, Ring, Woken, done_by
from delayq.processes import Processes
from delayq.wakeup import Wakeup
from delayq.workers import Workers

HASTEN_SECONDS = 0.002  # without an outcome, while messages wait and threads sleep

T = TypeVar("T")


class Mover:
    """The state of a run as far as it is I/O; what it decides is said by a class beside it, such as `Turns`.

    Args:
        connection: to the server.
        workers: that run the handlers.

    Attributes:
        turns_by: on the monotonic clock, when its present move should be done; infinite while it does not run.
    """

    _workers: Workers[Any] | Processes[Any]
    handled: int
    _stopping: bool
    _at_once: bool
    _consume: Callable[[Callable[[], float]], Moves[None]]

    def __init__(self, connection: Connection, workers: Workers[Any] | Processes[Any]) -> None:
        self._connection = connection
        self._workers = workers
        self.turns_by = math.inf
        self._sleeping = False
        self._thread: threading.Thread | None = None
        self._bells: list[Any] = []  # Bell, or StreamBell
        self._wakeup = Wakeup()

    def run(self, grace: Callable[[], float]) -> int:
        """Turn until stopped; return the number of messages handled.

        Args:
            grace: how many seconds running handlers are given in the end.
        """
        self._thread = threading.current_thread()
        try:
            self._workers.start()
            self._make(self._consume(grace))
        finally:
            self.turns_by = math.inf
            self._workers.unstarted()
            self._workers.stop()
            for each in self._bells:
                each.close()
                self._connection.leave(each.client)
            self._wakeup.close()
        return self.handled

    def runs_on(self, thread: threading.Thread) -> bool:
        """Whether a thread is this loop's or one of its workers: it must not wait for the loop's end."""
        return thread is self._thread or thread in self._workers.threads

    def stop(self, at_once: bool = False) -> None:
        """End the run soon; may be called from any thread, and from a signal handler."""
        self._stopping = True
        self._at_once = self._at_once or at_once
        self._wakeup.ring()

    def _do(self, steps: Steps[T]) -> T:
        # At the end, whoever waits for this consumer is not made to wait for a server that is away.
        token = HURRIES.set(lambda: self._stopping)  # also for a call that is out when it is told to stop
        try:
            return self._connection.do(steps, repeat=not self._stopping)
        finally:
            HURRIES.reset(token)

    def _make(self, moves: Moves[None]) -> None:
        """Make one move after the other; what goes wrong is the run's to handle."""
        try:
            move = next(moves)
            while True:
                self.turns_by = done_by(move)
                try:
                    if isinstance(move, Rest):
                        answer: Any = self._rest(move)
                    elif isinstance(move, Ring):
                        answer = self._ring(move)
                    elif isinstance(move, Pause):
                        answer = time.sleep(move.seconds)  # type: ignore[func-returns-value]  # there is none
                    else:
                        answer = self._do(move)
                except BaseException as error:  # noqa: BLE001
                    move = moves.throw(error)
                else:
                    move = moves.send(answer)
        except StopIteration:
            return

    def _rest(self, rest: Rest) -> Woken:
        bells = self._bells if rest.bells else ()
        self._sleeping = True
        if not self._workers.has_outcomes:
            behind = self._workers.is_behind
            bell.wait(bells, min(rest.seconds, HASTEN_SECONDS) if behind else rest.seconds, self._wakeup.fileno())
            if behind and not self._workers.has_outcomes:
                self._workers.hasten()
        self._sleeping = False
        disturbed = self._wakeup.clear()
        rang = [each.rang() for each in bells]
        return Woken(disturbed, any(rang))

    def _ring(self, ring: Ring) -> bool:
        rang = [getattr(each, ring.verb)() for each in self._bells]  # all of them, whatever the first one says
        return any(rang)

    def _nudge(self) -> None:
        if self._sleeping:
            self._wakeup.ring()
