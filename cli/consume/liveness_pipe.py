"""Signs of life that a process sends to its supervisor: single bytes through a pipe."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

ENV = "DELAYQ_HEARTBEAT"
"""In a child's environment: the file descriptor that it writes to."""

MANY = 65_536  # bytes: more than a pipe holds


class LivenessPipe:
    """The supervisor's end.

    Args:
        clock: monotonic, in seconds.

    Attributes:
        child: the file descriptor for the child; close it here once the child has it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._own, self.child = os.pipe()
        os.set_blocking(self._own, False)
        self._heard_at = clock()

    def silence(self) -> float:
        """Return how many seconds ago the last sign of life came."""
        with contextlib.suppress(BlockingIOError):
            if os.read(self._own, MANY):
                self._heard_at = self._clock()
        return self._clock() - self._heard_at

    def close(self) -> None:
        """Stop listening."""
        os.close(self._own)


class HeartbeatSender:
    """The child's end; without a supervisor that listens, it sends nothing."""

    def __init__(self) -> None:
        descriptor = os.environ.pop(ENV, "")  # processes that this one starts must not use it
        self._pipe = int(descriptor) if descriptor.isdigit() else None
        if self._pipe is not None:
            os.set_inheritable(self._pipe, False)
            os.set_blocking(self._pipe, False)

    def beat(self) -> None:
        """Give a sign of life."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # the pipe is full, or the supervisor is gone
                os.write(self._pipe, b".")
