"""Receiving for several threads at a time: each thread has its own wait."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from delayq.errors import ServerError, ServerUnreachable
from delayq.model.delivery import Delivery
from delayq.operations import late_claims
from delayq.operations.claim import claim_all
from delayq.operations.queue_context import QueueContext
from delayq.operations.topics.topic_context import TopicContext
from delayq.operations.upkeep import Upkeep
from delayq.runtime.receive_wait import ReceiveWait, TopicWait
from delayq.transport.clients import impatient
from delayq.transport.executor import Executor
from delayq.transport.forked_locks import renew_in_child

CLOSE_SECONDS = 1.0

D = TypeVar("D", bound=Delivery[Any])


def closed(context: QueueContext) -> ServerUnreachable:
    """Return the error for a receive whose queue was closed meanwhile."""
    return ServerUnreachable(f"queue {context.name} was closed during receive; the next call reconnects")


class Receiver(Generic[D]):
    """Takes messages for the callers of `Queue.receive`; each thread has its own wait.

    Args:
        make_message: turns a delivery into a message.
    """

    def __init__(self, context: QueueContext, executor: Executor, make_message: Callable[..., D]) -> None:
        self._context = context
        self._executor = executor
        self._make_message = make_message
        self._upkeep = Upkeep(context)
        self._waits = threading.local()
        self._running: set[ReceiveWait] = set()  # of calls that have not returned
        self._ended = threading.Condition()
        self._closings = 0
        renew_in_child(self)

    def receive(self, limit: int, lease_ms: int, seconds: float) -> list[D]:
        """Take up to `limit` messages under a lease; wait for the first one for up to `seconds`.

        It waits longer if messages were lost while nobody looked, until their holders have had the time to renew them.

        Raises:
            ServerUnreachable: the queue was closed meanwhile, or a node of a cluster has not answered yet and may
                have handed out messages. Then the next call brings them.
        """
        if len(self._context.shards) == 1:
            return self._receive(limit, lease_ms, seconds)
        with impatient(True):
            return self._receive(limit, lease_ms, seconds)

    def _receive(self, limit: int, lease_ms: int, seconds: float) -> list[D]:
        deadline = time.monotonic() + seconds
        wait, asked, closings = self._wait(), False, self._closings
        self._running.add(wait)
        try:
            while closings == self._closings:
                claiming = claim_all(self._context, self._make_message, limit, lease_ms, wait.name)
                batch = self._executor.execute(self._upkeep.beside(wait.taking(claiming)))
                late = late_claims.left(self._context)
                left = max(deadline - time.monotonic(), self._context.watch.held_back, late)
                if batch.messages or (left <= 0 and not batch.claimed):
                    if not batch.messages:
                        late_claims.check_all(self._context)
                    return batch.messages
                if batch.claimed or self._upkeep.is_due:
                    continue
                if not asked:
                    wait.begin(left, batch.waits)  # then claim again: it only counts what falls due later
                else:
                    wait.wait(left)
                asked = not asked
        except ServerError:
            if closings == self._closings:
                raise
        finally:
            try:
                wait.end()
            finally:
                with self._ended:
                    self._running.discard(wait)
                    self._ended.notify_all()
        raise closed(self._context)

    def close(self) -> None:
        """End the waiting calls, on any thread, and close the blocked connection of this thread.

        The calls have a second to return, so that their last commands do not reconnect after the close.
        """
        self._closings += 1
        for each in self._own():
            each.interrupt()
        wait = self._waits.__dict__.pop("wait", None)
        with self._ended:
            self._ended.wait_for(lambda: self._own() <= {wait}, CLOSE_SECONDS)
        if wait is not None:
            wait.close()

    def _own(self) -> set[ReceiveWait]:
        """Return the running waits, without those that a forked process has from its parent."""
        return {each for each in tuple(self._running) if each.process == os.getpid()}

    def _wait(self) -> ReceiveWait:
        wait: ReceiveWait | None = getattr(self._waits, "wait", None)
        if wait is None or wait.process != os.getpid():
            wait = self._waits.wait = ReceiveWait(self._context, self._executor)
        return wait


class TopicWaits:
    """The waits of a topic's readers: one for each thread."""

    def __init__(self, context: TopicContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._waits = threading.local()

    def wait(self, lasts: Sequence[str], seconds: float) -> None:
        """Return when there may be a record after one of `lasts`, after `seconds` at the latest."""
        wait: TopicWait | None = getattr(self._waits, "wait", None)
        if wait is None:
            wait = self._waits.wait = TopicWait(self._context, self._executor)
        wait.wait(lasts, seconds)

    def close(self) -> None:
        """Close the blocked connection of this thread."""
        wait = self._waits.__dict__.pop("wait", None)
        if wait is not None:
            wait.close()
