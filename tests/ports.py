"""TCP ports of 127.0.0.1 for tests, which run in several processes at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listened on a moment ago, nor on the one 10,000 above (a cluster's bus).

    Below the range from which the kernel takes the ports of outgoing connections. Others may take it: see OwnPort.
    """
    while True:
        port = 10_000 + secrets.randbelow(10_000)
        with contextlib.suppress(OSError), socket.socket() as listener, socket.socket() as bus:
            listener.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port


class OwnPort:
    """A free port that no other OwnPort is, in any process, until it is given up; also while nothing listens on it.

    A server that is killed and started again finds it free.
    """

    def __init__(self) -> None:
        while not self._take(free_port()):
            pass

    def give_up(self) -> None:
        """Leave it to others; a second time is in vain."""
        if not self._lock.closed:
            self._path.unlink(missing_ok=True)
            self._lock.close()

    def _take(self, number: int) -> bool:
        self.number = number
        self._path = Path(tempfile.gettempdir(), f"delayq-tests-port-{number}")
        self._lock = self._path.open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.stat().st_ino == os.fstat(self._lock.fileno()).st_ino:  # else it was unlinked meanwhile
                return True
        except OSError:  # another one's, or gone
            pass
        self._lock.close()
        return False
