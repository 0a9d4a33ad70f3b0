"""Group commit: messages that several threads send at the same time share a call.

Whoever finds nobody sending does so at once. The others wait; the first of them then sends for all that have come
meanwhile. A lone sender pays nothing for it, and a hundred cost the server little more than one.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Callable, Sequence

from delayq.errors import DelayqError
from delayq.message import SentMessage
from delayq.operations.sending import Sealed


class _Entry:
    """A message that waits, with its thread.

    Attributes:
        turn: is released when the thread may go on: with a result, or with a batch to send.
        follower: whom the thread wakes next. Woken all at once, the threads would fight for the interpreter's lock.
        has_left: the thread waits no longer.
    """

    __slots__ = ("batch", "follower", "has_left", "is_woken", "result", "sealed", "turn")

    def __init__(self, sealed: Sealed) -> None:
        self.sealed = sealed
        self.turn = threading.Lock()
        self.turn.acquire()
        self.result: SentMessage | DelayqError | None = None
        self.batch: list[_Entry] | None = None
        self.follower: _Entry | None = None
        self.is_woken = self.has_left = False


class Outbox:
    """Sends messages of many threads, one batch at a time.

    Args:
        send: sends messages that may be sent twice; raises DelayqError.
    """

    def __init__(self, send: Callable[[Sequence[Sealed]], list[SentMessage]]) -> None:
        self._send = send
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: list[_Entry] = []
        self._inside: set[int] = set()

    def send(self, sealed: Sealed) -> SentMessage:
        """Send one message, with those that others send now; raises what kept the server from taking it."""
        if self._process != os.getpid():  # forked: whoever was sending is not here
            self._reset()
        thread = threading.get_ident()
        if thread in self._inside:  # a signal handler that interrupts a send must not wait for its end
            return self._send([sealed])[0]
        self._inside.add(thread)
        try:
            return self._share(sealed)
        finally:
            self._inside.discard(thread)

    def _share(self, sealed: Sealed) -> SentMessage:
        with self._lock:
            mine = _Entry(sealed) if self._busy else None
            self._busy = True
            if mine is not None:
                self._waiting.append(mine)
        if mine is None:
            try:
                return self._send([sealed])[0]
            finally:
                self._pass_on([])
        try:
            mine.turn.acquire()
        except BaseException:
            self._leave(mine)
            raise
        if mine.batch is not None:
            self._send_all(mine, mine.batch)
        self._wake(mine.follower)
        if isinstance(mine.result, DelayqError):
            raise copy.copy(mine.result)
        assert mine.result is not None
        return mine.result

    def _send_all(self, mine: _Entry, batch: list[_Entry]) -> None:
        results: Sequence[SentMessage | DelayqError] = []
        try:
            results = self._send([entry.sealed for entry in batch])
        except DelayqError as error:
            results = [error] * len(batch)
        finally:
            # After an interrupt, nobody knows what became of the others' messages: one of them sends them again.
            self._pass_on([] if results else [entry for entry in batch if entry is not mine])
        for entry, result, follower in zip(batch, results, [*batch[1:], None], strict=True):
            entry.result, entry.follower = result, follower

    def _pass_on(self, left: list[_Entry]) -> None:
        """Let the next one send: what is left of a batch, and all that waits."""
        with self._lock:
            batch = [entry for entry in left if not entry.has_left] + self._waiting
            self._waiting = []
            self._busy = bool(batch)
            if batch:
                batch[0].batch, batch[0].is_woken = batch, True
        if batch:
            batch[0].turn.release()

    def _wake(self, entry: _Entry | None) -> None:
        # Without the lock, for which all would queue: whoever leaves says so first and looks for `is_woken` then, so
        # that of the two at least one wakes the follower; when both do, the second is in vain.
        while entry is not None:
            entry.is_woken = True
            if not entry.has_left:
                with contextlib.suppress(RuntimeError):
                    entry.turn.release()
                return
            entry = entry.follower

    def _leave(self, mine: _Entry) -> None:
        """Wait no longer: an exception, such as KeyboardInterrupt, has ended the wait."""
        with self._lock:
            mine.has_left = True
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        if mine.batch is not None:
            self._pass_on(mine.batch)
        elif mine.is_woken:
            self._wake(mine.follower)
