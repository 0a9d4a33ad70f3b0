"""Group commit: messages that several threads send at the same time share a call.

Whoever finds nobody sending does so at once. The others wait; the first of them then sends for all that have come
meanwhile. A lone sender pays nothing for it, and a hundred cost the server little more than one.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import threading
from collections.abc import Callable, Sequence

from delayq.errors import DelayqError
from delayq.model.delivery import SentMessage
from delayq.operations.encode import EncodedMessage
from delayq.protocol.operation import unwrap

# An interrupt (Ctrl-C) may strike a thread wherever it stands, also where it owes the others something. So that they
# never depend on it for good, whoever waits looks up from time to time: is the one that I wait for still there?
LOOK_UP_SECONDS = 1.0


class _PendingSend:
    """A message that waits, with its thread.

    Attributes:
        call: the number of the call of `SendCoalescer.send` that it stands for.
        leader: that of the call that sends it; 0 while none does.
        turn: is released when the thread may go on: with a result, or with a batch to send.
        follower: whom the thread wakes next. Woken all at once, the threads would fight for the interpreter's lock.
        has_left: the thread waits no longer.
    """

    __slots__ = ("batch", "call", "encoded", "follower", "has_left", "leader", "result", "turn")

    def __init__(self, encoded: EncodedMessage, call: int) -> None:
        self.encoded = encoded
        self.call = call
        self.leader = 0
        self.turn = threading.Lock()
        self.turn.acquire()
        self.result: SentMessage | DelayqError | None = None
        self.batch: list[_PendingSend] | None = None
        self.follower: _PendingSend | None = None
        self.has_left = False

    def wake(self) -> None:
        """Let the thread go on; a second time is in vain."""
        with contextlib.suppress(RuntimeError):
            self.turn.release()


class SendCoalescer:
    """Sends messages of many threads, one batch at a time.

    Args:
        send: sends messages that may be sent twice; for each, returns what became of it or the error that kept the
            server from taking it. Raises DelayqError for all of them.
    """

    def __init__(self, send: Callable[[Sequence[EncodedMessage]], Sequence[SentMessage | DelayqError]]) -> None:
        self._send = send
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._leader = 0
        self._waiting: list[_PendingSend] = []
        self._threads: set[int] = set()  # those in `send`
        self._calls: set[int] = set()  # those of `send` that have not ended: who is not among them leads no more
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Nothing: a thread that sends waits for the result."""

    def send(self, encoded: EncodedMessage) -> SentMessage:
        """Send one message, with those that others send now; raises what kept the server from taking it."""
        if self._process != os.getpid():  # forked: whoever was sending is not here
            self._reset()
        thread, call = threading.get_ident(), next(self._numbers)
        if thread in self._threads:  # a signal handler that interrupts a send must not wait for its end
            return unwrap(self._send([encoded])[0])
        try:
            try:
                self._threads.add(thread)
                self._calls.add(call)
                return unwrap(self._share(encoded, call))
            finally:
                self._threads.discard(thread)
                self._calls.discard(call)
        finally:  # once more, for an interrupt may strike just before the first
            self._threads.discard(thread)
            self._calls.discard(call)

    def _share(self, encoded: EncodedMessage, call: int) -> SentMessage | DelayqError:
        mine = None
        with self._lock:
            if self._leader not in self._calls:
                self._leader = call
            else:
                mine = _PendingSend(encoded, call)
                self._waiting.append(mine)
        if mine is not None:
            return self._wait(mine)
        try:
            return self._send([encoded])[0]
        finally:
            self._pass_on([])

    def _wait(self, mine: _PendingSend) -> SentMessage | DelayqError:
        try:
            while not mine.turn.acquire(timeout=LOOK_UP_SECONDS):
                if mine.result is not None or mine.batch is not None:  # whoever was to wake this thread is gone
                    break
                if self._is_forsaken(mine):
                    return self._send([mine.encoded])[0]
            if mine.batch is not None:
                self._send_all(mine, mine.batch)
        finally:
            mine.has_left = True
            follower = mine.follower
            while follower is not None and follower.has_left:
                follower = follower.follower
            if follower is not None:
                follower.wake()
        if mine.result is None:  # the leader was interrupted while it handed out the results
            return self._send([mine.encoded])[0]
        if isinstance(mine.result, DelayqError):  # each thread raises one of its own
            copied = copy.copy(mine.result)
            copied.__cause__ = mine.result.__cause__
            return copied
        return mine.result

    def _is_forsaken(self, mine: _PendingSend) -> bool:
        """Whether nobody will send a message any more; its thread then does so by itself."""
        with self._lock:
            if (mine.leader or self._leader) in self._calls:
                return False
            if mine in self._waiting:
                self._waiting.remove(mine)
            return True

    def _send_all(self, mine: _PendingSend, batch: list[_PendingSend]) -> None:
        results: Sequence[SentMessage | DelayqError] = []
        try:
            results = self._send([entry.encoded for entry in batch])
        except DelayqError as error:
            results = [error] * len(batch)
        finally:
            # After an interrupt, nobody knows what became of the others' messages: one of them sends them again.
            self._pass_on([] if results else [entry for entry in batch if entry is not mine])
        for entry, result, follower in zip(batch, results, [*batch[1:], None], strict=True):
            entry.result, entry.follower = result, follower

    def _pass_on(self, left: list[_PendingSend]) -> None:
        """Let the next one send: what is left of a batch, and all that waits."""
        with self._lock:
            self._leader = 0
            if not (left or self._waiting):
                return
            batch = [entry for entry in [*left, *self._waiting] if not entry.has_left]
            self._waiting = []
            if not batch:
                return
            leader = batch[0]
            self._leader, leader.batch = leader.call, batch
            for entry in batch:
                entry.leader = leader.call
        leader.wake()
