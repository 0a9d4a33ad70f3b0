"""Wait for a server that is away, instead of raising an error at once: for jobs, which have time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from delayq.errors import DelayqError, ServerNotReady, ServerUnreachable
from delayq.log import log
from delayq.model.outage import FIRST_PAUSE, LONGEST_PAUSE
from delayq.protocol.command import Command
from delayq.protocol.operation import Work

Perform: TypeAlias = Callable[..., Any]
AWAY = (ServerNotReady, ServerUnreachable)


def make_patient(opened: Any, seconds: float, label: str) -> None:
    """Let a queue or a topic wait for the server in each round trip, before it raises an error.

    Args:
        opened: a `Queue` or a `Topic`.
        seconds, label: as in `Patience`.
    """
    executor = opened._executor  # noqa: SLF001  # of the face, which has no such setting
    executor.perform = Patience(executor.perform, seconds, label)


class Patience:
    """Performs round trips, and repeats calls until the server is back, if they may run twice.

    Each round trip has the whole time.

    Args:
        perform: a round trip, as `Executor.perform`.
        seconds: how long to wait; 0 or more.
        label: what it is for.
    """

    def __init__(self, perform: Perform, seconds: float, label: str) -> None:
        self._perform = perform
        self._seconds = seconds
        self._label = label

    def __call__(self, effect: list[Command[Any]] | Work, repeat: bool = True) -> Any:
        """Perform what an operation yielded; return its results.

        Raises:
            DelayqError: as `perform`, once the time is over.
        """
        if callable(effect):
            return self._perform(effect, repeat)
        until, pause, has_warned = time.monotonic() + self._seconds, FIRST_PAUSE, False
        results: list[Any] = [None] * len(effect)
        left = list(range(len(effect)))
        while True:
            trip = [effect[number] for number in left]
            error, replies = self._tried(trip, repeat)
            if error is None:
                for number, reply in zip(left, replies, strict=True):
                    results[number] = reply
                left = [number for number in left if isinstance(results[number], AWAY)]
            if not left:
                if has_warned:
                    log.info("redis available again", what=self._label)
                return results
            seconds = until - time.monotonic()
            if seconds <= 0 or not repeat or not all(effect[number].repeats for number in left):
                if error is not None:
                    raise error
                return results  # errors among them are the operation's to handle
            if not has_warned:
                has_warned = True
                said = str(error or results[left[0]])
                log.warning("redis unavailable, waiting", what=self._label, seconds=round(seconds), error=said)
            time.sleep(min(pause, seconds))
            pause = min(LONGEST_PAUSE, pause * 2)

    def _tried(self, trip: list[Command[Any]], repeat: bool) -> tuple[DelayqError | None, list[Any]]:
        """Return the error of the connection, or else the replies."""
        try:
            return None, self._perform(trip, repeat)
        except AWAY as error:
            return error, []
