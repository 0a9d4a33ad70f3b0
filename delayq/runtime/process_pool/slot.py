"""A place for a process in a pool, and how the process is replaced between two messages."""

from __future__ import annotations

import threading
from collections.abc import Callable

from delayq.log import log
from delayq.runtime.process_pool.handle import WorkerProcess
from delayq.runtime.recycling import Recycling, resident_bytes


class Slot:
    """A place for a process: the one that runs the messages, and the successor that is to replace it.

    One thread runs messages (`begin`, `end`). Another one starts the successor, offers it, and ends the process that is
    left. The successor takes over when no message is running, so no message waits for it.

    Args:
        recycling: the limits of each process.

    Attributes:
        process: runs the next message.
        is_renewing: a successor is being started, or waits.
    """

    def __init__(self, process: WorkerProcess, recycling: Recycling) -> None:
        self.process = process
        self.is_renewing = False
        self._recycling = recycling
        self._limits = recycling.drawn()
        self._handled = 0
        self._successor: WorkerProcess | None = None
        self._left: WorkerProcess | None = None
        self._is_busy = self._is_closed = False
        self._changed = threading.Condition()
        self._renewals: list[threading.Thread] = []

    # -- for the thread that runs messages -----------------------------------------------------------------------------

    def begin(self) -> WorkerProcess:
        """Return the process for the next message; it stays until `end`."""
        with self._changed:
            self._is_busy = True
            self._handled += 1
            return self.process

    def end(self) -> None:
        """Note that no message is running: a successor that waits takes over."""
        with self._changed:
            self._is_busy = False
            self._take_over()

    @property
    def is_worn(self) -> bool:
        """Whether the process has handled as many messages as it should, with the one that it is given now."""
        return self._limits.is_worn(self._handled)

    @property
    def is_large(self) -> bool:
        """Whether the process has as much memory as it may."""
        return self._limits.is_large(self.process.pid)

    def renew(self, renew: Callable[[Slot], None], name: str) -> None:
        """Let a function replace the process, on a thread of its own, unless one does so already."""
        if self.is_renewing:
            return
        self._renewals = [each for each in self._renewals if each.is_alive()]
        thread = threading.Thread(target=renew, args=(self,), name=name, daemon=True)
        self.is_renewing = True
        try:
            thread.start()
        except RuntimeError as error:  # out of threads: the process stays, and the next message tries again
            self.is_renewing = False
            log.error("pool process not recycled", error=str(error))
            return
        self._renewals.append(thread)

    def is_replaced(self, dead: WorkerProcess) -> bool:
        """Return whether a successor of a process that has died was ready; one that is being started may hang."""
        return self.process is not dead

    def close(self) -> None:
        """Let no successor take over from now on, and wait for the threads that renew."""
        with self._changed:
            self._is_closed = True
            self._take_over()
            self._changed.notify_all()
        for thread in self._renewals:
            thread.join()

    # -- for the thread that renews ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the process runs messages: otherwise nothing needs to be renewed."""
        return not self._is_closed

    def offer(self, successor: WorkerProcess) -> WorkerProcess:
        """Replace the process as soon as no message is running; return the process to end.

        That is the successor itself if the slot was closed, or if it died while it waited.
        """
        with self._changed:
            self._successor = successor
            if not self._is_busy or self._is_closed:
                self._take_over()
            self._changed.wait_for(lambda: self._successor is None)
            return self._left or successor

    def pause(self, seconds: float) -> None:
        """Wait before another try, for as long as the process runs messages."""
        with self._changed:
            self._changed.wait_for(lambda: not self.is_open, seconds)

    def renewed(self) -> None:
        """Note that the renewal has ended."""
        self.is_renewing = False

    def _take_over(self) -> None:
        successor, self._successor = self._successor, None
        if successor is None:
            return
        self._left = successor
        if not self._is_closed and successor.has_ended():
            log.warning("pool process died, restarting", how="it ended before its first message", pid=successor.pid)
        elif not self._is_closed:
            self._left, self.process = self.process, successor
            about = {"messages": self._handled, "memory": resident_bytes(self._left.pid)}
            log.info("pool process recycled", pid=self._left.pid, successor=successor.pid, **about)
            self._limits, self._handled = self._recycling.drawn(), 0
        self._changed.notify_all()
