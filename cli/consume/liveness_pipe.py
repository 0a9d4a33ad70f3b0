"""What a process and its supervisor tell each other: single bytes through a pair of sockets."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable

ENV = "DELAYQ_HEARTBEAT"
"""In a child's environment: the file descriptor that it writes to, and reads from."""

STARTING, RUNNING, WORN = b".", b"+", b"w"
"""A sign of life, and how its sender is: it does not consume yet, it consumes, or it should be replaced."""

RETIRE = b"r"
"""What the supervisor says to a process whose successor runs."""

MANY = 65_536  # bytes: more than the sockets hold


class LivenessPipe:
    """The supervisor's end.

    Args:
        clock: monotonic, in seconds.

    Attributes:
        child: the file descriptor for the child; close it here once the child has it.
        state: how the child was at its last sign of life.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._own, child = socket.socketpair()
        self.child = child.detach()
        self._own.setblocking(False)
        self._heard_at = clock()
        self.state = STARTING

    def silence(self) -> float:
        """Return how many seconds ago the last sign of life came."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            if heard := self._own.recv(MANY):
                self._heard_at, self.state = self._clock(), heard[-1:]
        return self._clock() - self._heard_at

    def retire(self) -> None:
        """Tell the child to take nothing new, and to end when its handlers have."""
        with contextlib.suppress(OSError):  # it is gone
            self._own.send(RETIRE)

    def close(self) -> None:
        """Stop listening."""
        self._own.close()


class HeartbeatSender:
    """The child's end; without a supervisor that listens, it sends nothing.

    Attributes:
        is_connected: a supervisor listened at the start.
    """

    def __init__(self) -> None:
        descriptor = os.environ.pop(ENV, "")  # processes that this one starts must not use it
        self._pipe = int(descriptor) if descriptor.isdigit() else None
        self.is_connected = self._is_read = self._pipe is not None
        self._poll = select.poll()
        if self._pipe is not None:
            os.set_inheritable(self._pipe, False)
            os.set_blocking(self._pipe, False)
            self._poll.register(self._pipe, select.POLLIN)

    def beat(self, state: bytes = STARTING) -> None:
        """Give a sign of life."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # the pipe is full, or the supervisor is gone
                os.write(self._pipe, state)

    def is_retired(self, seconds: float) -> bool:
        """Wait for up to `seconds`; return whether the supervisor has said that this process should end meanwhile."""
        if self._pipe is None or not self._is_read:
            time.sleep(seconds)
            return False
        if not self._poll.poll(seconds * 1000):
            return False
        try:
            said = os.read(self._pipe, MANY)
        except BlockingIOError:
            return False
        except OSError:
            said = b""
        self._is_read = bool(said)  # otherwise the supervisor is gone
        return RETIRE in said
