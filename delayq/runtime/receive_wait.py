"""Receiving: the wait for a queue's next message, and for a topic's next record."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from delayq.errors import ServerError, ServerUnreachable
from delayq.model import consumer_info
from delayq.model.delivery import Delivery
from delayq.model.interval import FALLBACK_MS
from delayq.operations import idle, late_claims, presence
from delayq.operations.claim import claim_all
from delayq.operations.queue_context import QueueContext
from delayq.operations.topics.publish import append_due
from delayq.operations.topics.topic_context import TopicContext
from delayq.operations.upkeep import Upkeep
from delayq.protocol.operation import Operation
from delayq.runtime.lifecycle import consumer_name
from delayq.transport import listener
from delayq.transport.clients import impatient
from delayq.transport.executor import Client, Executor

CLOSE_SECONDS = 1.0

D = TypeVar("D", bound=Delivery[Any])
T = TypeVar("T")


class ReceiveWait:
    """Waits for a queue's next message, together with consumers and other receivers."""

    def __init__(self, context: QueueContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._token = secrets.token_hex(4)
        self._presence = presence.Presence(context, partial(consumer_info.describe, 0, time.monotonic()))
        self._bells: list[listener.BellListener] = []
        self._client: Client | None = None  # of the bells
        self._until = 0.0
        self._promised = False

    def taking(self, claim: Operation[T]) -> Operation[T]:
        """Return a claim; when it is time, together with this receiver's heartbeat."""
        return self._presence.beside(claim, self.name)

    def begin(self, seconds: float, held: bool = False) -> None:
        """Listen, and ask for the time of the next event within `seconds`; `held` is as in `idle.plan_sleep`."""
        client = self._executor.client
        if client is not self._client or len(self._bells) != len(self._context.shards):
            self.close()
            self._client = client
            away = self._executor.is_away
            self._bells = [listener.BellListener(client, shard.keys.bell, away) for shard in self._context.shards]
        listener.listen(self._bells)
        most = min(FALLBACK_MS, max(1, int(seconds * 1000)))
        self._until, self._promised, _ = self._executor.execute(idle.plan_sleep(self._context, self.name, most, held))

    def wait(self, seconds: float) -> None:
        """Return when there may be work, after at most `seconds` or the fallback time."""
        listener.wait(self._bells, min(self._until - time.monotonic(), seconds, self._context.outages.pause()))
        listener.take_tokens(self._bells)

    def interrupt(self) -> None:
        """End a wait at once."""
        for each in self._bells:
            each.interrupt()

    def end(self) -> None:
        """Stop listening, and pass on what this receiver no longer watches."""
        tokens = [each.stop_listening() for each in self._bells]
        if self._client is not None:
            self._executor.leave(self._client)
        promised, self._promised = self._promised and time.monotonic() < self._until, False
        if (any(tokens) or promised) and self._executor.is_open:
            with contextlib.suppress(ServerError):  # the fallback poll of the others makes up for it
                self._executor.execute(idle.pass_on(self._context, self.name))

    @property
    def name(self) -> str:
        """The name of this receiver; a forked child has another one."""
        return consumer_name(self._token)

    def close(self) -> None:
        """Close the blocked connections."""
        for each in self._bells:
            each.close()


class TopicWait:
    """Waits for a topic's next record, and appends delayed records that fall due meanwhile; for one thread."""

    def __init__(self, context: TopicContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._bells: list[listener.StreamListener] = []
        self._client: Client | None = None  # of the bells

    def wait(self, lasts: Sequence[str], seconds: float) -> None:
        """Return when there may be a record after one of `lasts`, ids per shard; after at most `seconds`, or a second.

        It appends due records even if `seconds` is over: the caller reads once more.
        """
        waiting = self._executor.execute(append_due(self._context))
        shards = self._context.shards
        if len(lasts) != len(shards):  # the topic was created meanwhile, with more shards: the caller reads again
            return
        client = self._executor.client
        if client is not self._client or len(self._bells) != len(shards):
            self.close()
            self._client = client
            self._bells = [listener.StreamListener(client, each.keys.stream, each.keys.waking) for each in shards]
        for each, last, seen in zip(self._bells, lasts, waiting.seen, strict=True):
            each.seen = (last, seen)
            each.listen()
        end = time.monotonic() + min(seconds, FALLBACK_MS / 1000)
        if waiting.next_ms is not None:
            end = min(end, time.monotonic() + waiting.next_ms / 1000)
        listener.wait(self._bells, end - time.monotonic())
        for each in self._bells:
            each.take_token()

    def close(self) -> None:
        """Close the blocked connections."""
        bells, self._bells = self._bells, []
        for each in bells:
            each.close()


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
        for each in tuple(self._running):
            each.interrupt()
        wait = self._waits.__dict__.pop("wait", None)
        with self._ended:
            self._ended.wait_for(lambda: self._running <= {wait}, CLOSE_SECONDS)
        if wait is not None:
            wait.close()

    def _wait(self) -> ReceiveWait:
        wait: ReceiveWait | None = getattr(self._waits, "wait", None)
        if wait is None:
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
