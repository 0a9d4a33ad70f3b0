"""Whether and how fast a run should end."""

from __future__ import annotations

import time
from collections.abc import Callable

from delayq.log import log_of
from delayq.model.delivery import Handed

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
        self._began = 0.0
        self._grace: Callable[[], float] = float

    def begin(self, grace: Callable[[], float]) -> None:
        """Begin to wait for running handlers; `grace` returns how many seconds they get, which may become fewer."""
        self._began, self._grace = time.monotonic(), grace
        self.deadline = self._began + grace()

    def heed(self) -> None:
        """Move the deadline forward if handlers get less time than they had."""
        self.deadline = min(self.deadline, self._began + self._grace())

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
