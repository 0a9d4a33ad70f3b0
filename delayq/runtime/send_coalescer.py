"""Group commit: messages that several threads send at the same time share a call.

A thread that finds no other sending sends at once. The others wait; the first of them then sends for all that came
meanwhile. A single sender pays nothing for this, and a hundred cost the server little more than one.
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

# An interrupt (Ctrl-C) may hit a thread anywhere, even where others wait for it. So each waiting thread checks from
# time to time whether the one that it waits for is still there.
LOOK_UP_SECONDS = 1.0


class _PendingSend:
    """A message that waits, with its thread.

    Attributes:
        call: the number of its call of `SendCoalescer.send`.
        leader: the number of the call that sends it; 0 while none does.
        turn: released when the thread may continue: with a result, or with a batch to send.
        follower: the next to wake. If all were woken at once, their threads would fight for the interpreter's lock.
        has_left: the thread has stopped waiting.
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
        """Let the thread continue; a second call has no effect."""
        with contextlib.suppress(RuntimeError):
            self.turn.release()


class SendCoalescer:
    """Sends messages of many threads, one batch at a time.

    Args:
        send: sends messages that may be sent twice; for each, returns its result or the error with which the server
            refused it. Raises DelayqError for all of them.
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
        self._calls: set[int] = set()  # of `send` that have not ended; an ended one does not lead
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Do nothing: each sending thread waits for its result."""

    def send(self, encoded: EncodedMessage) -> SentMessage:
        """Send one message, with those that others send now; raise the error with which the server refused it."""
        if self._process != os.getpid():  # forked: the threads that were sending are not here
            self._reset()
        thread, call = threading.get_ident(), next(self._numbers)
        if thread in self._threads:  # in a signal handler, which must not wait for the send that it interrupts
            (result,) = self._send([encoded])
        else:
            try:
                try:
                    self._threads.add(thread)
                    self._calls.add(call)
                    result = self._share(encoded, call)
                finally:
                    self._threads.discard(thread)
                    self._calls.discard(call)
            finally:  # again, since an interrupt may hit just before the first time
                self._threads.discard(thread)
                self._calls.discard(call)
        if isinstance(result, DelayqError):
            raise result
        return result

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
                if mine.result is not None or mine.batch is not None:  # the one that should wake this thread is gone
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
        if isinstance(mine.result, DelayqError):  # each thread raises its own copy
            copied = copy.copy(mine.result)
            copied.__cause__ = mine.result.__cause__
            return copied
        return mine.result

    def _is_forsaken(self, mine: _PendingSend) -> bool:
        """Whether no thread has sent a message or will, so that its own thread must."""
        with self._lock:
            # The leader is looked for first: it hands out the results before its call ends.
            if (mine.leader or self._leader) in self._calls or mine.result is not None:
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
        """Let the next thread send the rest of a batch and all waiting messages."""
        with self._lock:
            self._leader = 0
            if not left and not self._waiting:
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
