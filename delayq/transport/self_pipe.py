"""A way to wake a thread that waits on sockets: from another thread, or from a signal handler."""

from __future__ import annotations

import contextlib
import socket


class SelfPipe:
    """A pair of sockets to oneself: the waiting thread waits on `fileno` too."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._is_rung = False  # a second byte would say nothing more, and cost a call of the system

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._read.fileno()

    def ring(self) -> None:
        """Wake the waiting thread, now or when it waits next; does nothing once closed."""
        if self._is_rung:
            return
        self._is_rung = True
        with contextlib.suppress(OSError):  # closed
            self._write.send(b".")

    def clear(self) -> bool:
        """Forget the calls so far; return whether there were any. Look afterwards for what they announce."""
        try:
            return bool(self._read.recv(4096))
        except BlockingIOError:
            return False
        finally:
            self._is_rung = False  # only now: the read may have taken the byte of a call that came before it

    def close(self) -> None:
        """Close the pair."""
        self._read.close()
        self._write.close()
