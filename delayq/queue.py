# Made from delayq/aio/queue.py by `make faces`: change that file.
"""A queue: sending, pull-style receiving, and the calls of its keepers."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Concatenate, Never, ParamSpec, Self, TypeVar, overload

from msgspec import UNSET

from delayq.dead_letters import DeadLetters
from delayq.errors import DelayqError
from delayq.ledger import Ledger
from delayq.model import validation
from delayq.model.backoff import Backoff
from delayq.model.batch_handler import BatchHandler, check_sizes
from delayq.model.configuration import Configuration, Count, Events, Rate, Waits, changes, wishes
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.delivery import OnConflict, Outgoing, SentMessage, unknown_option
from delayq.model.envelope import MAX_PAYLOAD_BYTES, Headers
from delayq.model.event import Event
from delayq.model.message import Message
from delayq.model.message_ids import new_id
from delayq.model.message_info import MessageInfo
from delayq.model.middleware import Middleware
from delayq.model.occurrence import Missed, make_plan
from delayq.model.outcome import Outcome, check_handler
from delayq.model.placement import State
from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.sample import Sample
from delayq.model.typed_payload import adapt
from delayq.model.units import Seconds, lease_ms, milliseconds
from delayq.operations import (
    configure,
    counts,
    encode,
    explain,
    garbage,
    inspect,
    manage,
    paging,
    presence,
    send,
    settle,
)
from delayq.operations.message_store import message_store
from delayq.operations.paging import Page
from delayq.operations.queue_context import QueueContext, Settings
from delayq.protocol.operation import Operation, Program
from delayq.runtime.handler_registry import HandlerRegistry
from delayq.runtime.receive_wait import Receiver
from delayq.runtime.send_coalescer import SendCoalescer
from delayq.schedules import Schedules
from delayq.transport.executor import Client, Executor
from delayq.transport.open_client import check_client, connect

P = ParamSpec("P")
T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[[Any], Any])


class Queue:
    """A queue of messages, each delivered at its time to at least one consumer.

    Nothing is connected before the first call. A queue may be used by several threads.

    Args:
        name: 1 to 128 bytes, printable, without braces and ``#``.
        url: of the server; DELAYQ_URL, or the embedded store, when neither it nor `redis` is given.
        redis: a client to use as it is, instead of `url`.
        prefix: what all keys begin with.
        lease: seconds or a timedelta, 0.001 s to a day: how long a delivery may go without a sign of life.
        max_retries: deliveries after the first one, 0 to 1,000,000, for messages that this program sends without it.
            What `configure` has stored goes first, and a difference is logged once; 5 where neither says anything.
        backoff: the waits before them, for what fails in this program: one of `delayq.backoff`, or a function that
            returns seconds. It is called with the number of the attempt that failed and, if it takes a second argument,
            with what the handler has raised or was nacked with, or None. What `configure` has stored goes first. By
            default: 10 s, then three times as long each time, at most an hour, with 10 % of jitter: what fails each
            time is a dead letter after about 20 minutes.
        shards: over how many hash slots the queue is spread, 1 to 1,024; None takes what Redis has recorded.
        max_payload: the most bytes of a payload, 1 or more.
        middleware: what is done around each delivery and send, if other queues share it; else one of its own is made.
        concurrency_key: called with a message that is due, tells by a text (1 to 256 bytes) with which others it shares
            the limit per key, or None: it is not limited.
        dead_retention: seconds (0 or more) or a timedelta that it and its ledger's groups keep dead letters; None for
            ever.
        horizon: seconds or a timedelta: what is due later than that from its send rests in `lake`, until a load brings
            it into Redis; see docs/far-future.md. Off when None.
        lake: a folder that all clients share, or a URI that pyarrow knows, such as ``s3://bucket/folder``.
        rate, concurrency, concurrency_per_key, events: as in `configure`: stored when this client first sends,
            consumes, receives or configures, where nothing is stored yet. Afterwards `configure` alone changes or
            removes them; a difference is logged once. None says nothing.
        clock: for tests: returns the time, in milliseconds, that the scripts go by instead of the server's.

    Raises:
        InvalidInput: naming the argument. Calls raise it, too, for theirs, and ServerError for the server's troubles.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        redis: Client | None = None,
        prefix: str = "delayq",
        lease: Seconds = 30,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        shards: int | None = 1,
        max_payload: int = MAX_PAYLOAD_BYTES,
        middleware: Middleware | None = None,
        concurrency_key: Callable[[Message], str | None] | None = None,
        rate: str | None = None,
        concurrency: int | None = None,
        concurrency_per_key: int | None = None,
        events: bool | int | None = None,
        dead_retention: Seconds | None = 90 * 86400,
        horizon: Seconds | None = None,
        lake: str | os.PathLike[str] | None = None,
        clock: Callable[[], float | str] | None = None,
    ) -> None:
        check_client(url, redis)
        limits = wishes(rate, concurrency, concurrency_per_key, events)
        settings = Settings(lease, max_retries, backoff, max_payload, dead_retention, limits, concurrency_key)
        self.name = name
        self._context = QueueContext(name, prefix, shards, settings, clock or str)
        self._context.queue = self
        self._context.middleware = Middleware.of(middleware)
        self.handlers = HandlerRegistry(self.middleware)
        self._store = message_store(self._context, horizon, lake)
        self._executor = Executor(lambda: connect(url) if redis is None else redis, shared=redis is not None)
        self._dead = DeadLetters(self._context, self._executor)
        self._schedules = Schedules(self._context, self._executor)
        self._events = Ledger(self._context, self._executor)
        self._receiver: Receiver[Message] = Receiver(self._context, self._executor, Message)
        self._coalescer = SendCoalescer(self._send_shared)

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def dead(self) -> DeadLetters:
        """The dead letters: list, requeue, redrive, edit or purge them, and count their causes."""
        return self._dead

    @property
    def schedules(self) -> Schedules:
        """The schedules: add, list, pause, resume, run or remove them, and see what comes next."""
        return self._schedules

    @property
    def middleware(self) -> Middleware:
        """What is done around each delivery and each send: register functions with its methods."""
        return self._context.middleware

    @property
    def events(self) -> Ledger:
        """The ledger as a topic, with a record for each transition of a message, once `configure(events=…)` is on."""
        return self._events

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this queue has made; a client that was passed in stays open."""
        self._coalescer.close()
        self._receiver.close()
        self._events.close()
        self._executor.close()

    def execute(
        self,
        operation: Callable[Concatenate[QueueContext, P], Operation[T] | Program[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run one of `delayq.operations` on this queue: ``queue.execute(function, …)``, its context coming first.

        It is for what this class has no method for, as in delayq's own command line and dashboard. What operations
        there are may change with any version.
        """
        return self._executor.execute(operation(self._context, *args, **kwargs))

    def send(
        self,
        payload: Any,
        delay: Seconds | None = None,
        at: dt.datetime | None = None,
        *,
        id: str | None = None,  # the public name
        on_conflict: OnConflict = "ignore",
        expires_in: Seconds | None = None,
        max_retries: int | None = None,
        headers: Headers | None = None,
        unique_for: Seconds | None = None,
        timeout: Seconds | None = None,
        wait_replicas: int = 0,
        **unknown: Never,
    ) -> SentMessage:
        """Send a message; the options are those of `Outgoing`.

        Args:
            wait_replicas: return once so many replicas have confirmed it, within 3 seconds.

        Raises:
            InvalidInput: an argument is out of range; nothing was stored.
            DuplicateMessage: on_conflict="error", and the id exists.
            NotReplicated: the message is stored, but not on as many replicas.
        """
        if unknown:
            raise unknown_option(*unknown)
        message = Outgoing(
            payload,
            delay=delay,
            at=at,
            id=id,
            on_conflict=on_conflict,
            expires_in=expires_in,
            max_retries=max_retries,
            headers=headers,
            unique_for=unique_for,
            timeout=timeout,
        )
        send.check_replicas(wait_replicas)
        if (  # the short way is for a queue of which all is known
            wait_replicas or self.middleware.has_sends or self._store.may_defer(message) or not self._context.is_open
        ):
            sending = self._store.send_many([message], wait_replicas, is_batch=False)
            [sent] = self._executor.execute(sending)
            return sent
        encoded = encode.encode_one(self._context, message, new_id())
        if encode.may_share(encoded):
            return self._coalescer.send(encoded)
        [sent] = self._executor.execute(send.send_encoded(self._context, [encoded]))
        return sent

    def send_many(self, messages: Iterable[Outgoing], *, wait_replicas: int = 0) -> list[SentMessage]:
        """Send any number of messages, in batches; the results stand in their order.

        All are checked before the first is stored. A failure of the server in the middle leaves some of them in.

        Raises:
            InvalidInput: one of them is out of range; nothing was stored.
            DuplicateMessage: on_conflict="error", and an id exists; all others are stored.
            NotReplicated: too few replicas confirmed a batch of them, and those behind it are not stored: the error
                says which are stored, which are not, and what to send again.
        """
        return self._executor.execute(self._store.send_many(messages, wait_replicas))

    def send_delay_msg(
        self, payload: Any, delay: Seconds, retry_count: int | None = None, **options: Any
    ) -> SentMessage:
        """Send a message that is due after `delay`: `send` under its classic name."""
        return self.send(payload, delay=delay, max_retries=retry_count, **options)

    def send_schedule_msg(
        self, payload: Any, at: dt.datetime, retry_count: int | None = None, **options: Any
    ) -> SentMessage:
        """Send a message that is due at an aware datetime: `send` under its classic name."""
        return self.send(payload, at=at, max_retries=retry_count, **options)

    def receive(self, max_messages: int = 10, wait: Seconds = 0, lease: Seconds | None = None) -> list[Message]:
        """Take messages that are due; settle each with its `ack`, `nack`, `release` or `reject`.

        Args:
            max_messages: 1 to 500.
            wait: seconds (0 or more) or a timedelta to wait for the first one.
            lease: how long they are ours; the queue's own lease when None. `Message.extend` makes it longer.

        Returns:
            retries first, each side earliest due first; empty when nothing came in time.

        Raises:
            ServerUnreachable: the queue was closed while the call waited.
        """
        validation.check_limit(max_messages, "max_messages", most=500)
        leased = lease_ms(self._context.settings.lease if lease is None else lease)
        return self._receiver.receive(max_messages, leased, milliseconds(wait, "wait") / 1000)

    def ack(self, messages: Message | Sequence[Message]) -> list[bool]:
        """Settle messages as done, in one round trip; False where the receipt was stale."""
        return self._executor.execute(settle.ack(self._context, messages, Message))

    def settle(self, message: Message, outcome: Outcome) -> None:
        """Settle one delivery; raises StaleReceipt when it is no longer ours."""
        self._executor.execute(settle.settle_one(self._context, message, outcome))

    def extend(self, message: Message, seconds: Seconds) -> None:
        """Let a delivery's lease end `seconds` from now; raises StaleReceipt when it is no longer ours."""
        self._executor.execute(settle.extend(self._context, message, seconds))

    @overload
    def handler(self, function: Handler) -> Handler: ...

    @overload
    def handler(self) -> Callable[[Handler], Handler]: ...

    def handler(self, function: Any = ...) -> Any:
        """Register the function that a `Consumer` of this queue calls for each message (a decorator).

        ``@queue.handler()`` does the same.

        Returning acks; returning `Ack(then=[…])` also sends what follows, in the same step. Returning False or raising
        nacks with the queue's backoff; `Reject` buries the message; `RetryAfter` retries it then.

        A function whose argument is annotated as `Message[Order]` gets messages whose payload is an Order; as Order,
        the payload itself. A payload that is none makes its message a dead letter.

        Raises:
            InvalidInput: it is not callable, or a coroutine or generator function, which a call does not run; or its
                annotation cannot be resolved, or names what no payload can be read as; or the queue has a handler
                already.
        """
        if function is ...:
            return self.handler
        check_handler(function)
        self.handlers.register(adapt(function), self.name)
        return function

    @overload
    def batch_handler(self, function: Handler, /) -> Handler: ...

    @overload
    def batch_handler(
        self, function: None = None, /, *, max_messages: int = 500, max_wait: Seconds = 0.1
    ) -> Callable[[Handler], Handler]: ...

    def batch_handler(self, function: Any = None, /, *, max_messages: int = 500, max_wait: Seconds = 0.1) -> Any:
        """Register the function that a `Consumer` of this queue calls with lists of messages (a decorator).

        Without parentheses, ``@queue.batch_handler``, the defaults hold.

        Returning None acks them all, and raising fails each of them, as in `handler`. To decide about each message,
        return a mapping from ids to verdicts: True, False, ``Ack(then=[…])``, or an error, such as ``Reject("why")``,
        which counts as raised for this message alone. What the mapping leaves out is acked.

        A function whose argument is annotated as ``list[Message[Order]]`` gets messages whose payload is an Order; as
        ``list[Order]``, the payloads. A payload that is none makes its own message a dead letter.

        Args:
            max_messages: the most in a batch, 1 to 10,000.
            max_wait: seconds (0 to 86,400) or a timedelta that the first message of a batch waits for others.

        Raises:
            InvalidInput: a number is out of range, or for what `handler` refuses.
        """
        check_sizes(max_messages, max_wait)

        def register(function: Handler) -> Handler:
            check_handler(function)
            self.handlers.register(BatchHandler.of(function, max_messages, max_wait), self.name)
            return function

        return register if function is None else register(function)

    def cron(
        self,
        when: str,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        missed: Missed = "once",
        grace: Seconds | None = None,
        start: dt.datetime | None = None,
        end: dt.datetime | None = None,
        jitter: Seconds = 0,
        payload: Any = None,
        max_retries: int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> Callable[[Handler], Handler]:
        """Register a function that a `Consumer` of this queue calls at the slots of a schedule (a decorator).

        The schedule is stored when a consumer starts; the options are those of `Schedules.add`. What the function
        returns or raises means what it does in `handler`.

        Args:
            name: of the schedule; the function's own when None.

        Raises:
            InvalidInput: naming what is wrong.
        """
        plan = make_plan(when, timezone, missed, grace, start, end, jitter, own=True)
        wanted = name, payload, max_retries, headers, timeout
        return self.handlers.crons.registering(self._context, check_handler, plan, *wanted)

    def cancel(self, id: str) -> manage.Cancelled:
        """Withdraw a message that waits or is dead. One "in_flight" is not stopped, but will not be retried."""
        return self._executor.execute(self._store.cancel(id))

    def reschedule(
        self,
        id: str,
        delay: Seconds | None = None,
        at: dt.datetime | None = None,
    ) -> manage.Rescheduled:
        """Give a waiting message another due time; "in_flight", "dead" and "unknown" ones are left as they are."""
        return self._executor.execute(self._store.reschedule(id, delay, at))

    def get(self, id: str) -> MessageInfo | None:
        """Return what is known of a message; None when there is none (any more)."""
        return self._executor.execute(self._store.get(id))

    def why(self, id: str) -> str:
        """Say in one sentence why a message has not been delivered, or what became of it.

        It is not due; or it is, but the queue is paused, a limit holds it back, others are due earlier, or there is no
        consumer; it runs; it waits for its next attempt; it is dead; or it is gone: how, only the ledger tells.
        """
        return self._executor.execute(self._store.why(id))

    def history(self, id: str) -> list[Event]:
        """Return what became of a message, oldest first, as far as the ledger tells (`configure`); gone ones included.

        Of an id that was used again, it tells of all messages that had it. Without a ledger, or of an id that is not in
        it (any more), nothing is told: the list is empty. All of the ledger is looked through, 500 entries a call.
        """
        return self._executor.execute(explain.history(self._context, id))

    def peek(self, state: State = "pending", limit: int = 10) -> list[MessageInfo]:
        """Look at up to `limit` (1 to 1,000,000) messages of a state, lowest score first, without taking them."""
        return self._executor.execute(inspect.peek(self._context, state, limit))

    def page(
        self,
        state: State = "pending",
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 100,
        largest: int | None = None,
    ) -> Page:
        """Look at a page of a state, lowest score first, without taking messages; as quick for the last of a million.

        Args:
            after: `after` of the page in front of the wanted one; None for the first page.
            before: `before` of the page behind the wanted one, or "+" for the last page, instead.
            limit: 1 to 500 messages.
            largest: bytes; of a message that takes more in Redis the payload, headers and the like are not read.
        """
        return self._executor.execute(paging.page(self._context, state, after, before, limit, largest))

    def wish(self, *, events: bool) -> None:
        """As `events` of the constructor, unless this queue was made with one."""
        self._context.wish(events)

    def pause(self, seconds: Seconds | None = None) -> None:
        """Hand out nothing for a time, or until `resume`; sending continues, and what runs is finished.

        If the queue is paused already, the new end replaces the old one.

        Args:
            seconds: 0.001 to 366 days, as a number or a timedelta, by the server's clock; None for no end but `resume`.

        Raises:
            InvalidTime: outside that range; nothing was changed.
        """
        self._executor.execute(manage.pause(self._context, seconds))

    def resume(self) -> None:
        """Hand out messages again."""
        self._executor.execute(manage.resume(self._context))

    def configure(
        self,
        *,
        rate: Rate = UNSET,
        concurrency: Count = UNSET,
        concurrency_per_key: Count = UNSET,
        events: Events = UNSET,
        max_retries: Count = UNSET,
        backoff: Waits = UNSET,
        max_dead: Count = UNSET,
    ) -> None:
        """Set what holds for all that use the queue, from now on: limits, retries, and whether it keeps a ledger.

        What is not named stays, and None removes it. No constructor undoes that.

        Args:
            rate: the most hand-outs, those of retries included, in any span of time: 1 to 100,000 in 1 ms to a day, as
                in "100/s", "5/10s", "20/100ms", "9/min", "500/h" or "10000/d".
            concurrency: the most messages, 1 to 1,000,000, that are handed out and not settled, at any time.
            concurrency_per_key: likewise, of those that share a key. Clients with a `concurrency_key` keep to it, and
                others hand out everything.
            events: whether each transition of a message adds an entry to the queue's ledger: the number of entries
                that it keeps (each shard's, to about a hundred), 1 to 10,000,000; True is as many as so far, or else
                100,000. None or False ends it, and leaves what is there.
            max_retries: deliveries after the first one, 0 to 1,000,000, of messages that are sent without it. Each
                message keeps the number with which it was sent. Programs that run notice a change within a minute.
            backoff: the waits before them: one of `delayq.backoff`, or its text, as in
                "exponential:base=10s,factor=3". Programs that run notice a change within a minute.
            max_dead: the most dead letters to keep, 1 to 1,000,000 (each shard keeps an equal part, and at least
                one). Consumers, and programs that call `receive`, purge the oldest ones beyond it within a minute.

        Raises:
            InvalidInput: naming the argument, or limits of a queue with shards; nothing was changed.
        """
        self._executor.execute(
            configure.configure(
                self._context, changes(rate, concurrency, concurrency_per_key, events, max_retries, backoff, max_dead)
            )
        )

    def configuration(self) -> Configuration:
        """Return what holds for all that use the queue.

        Raises:
            ServerError: it cannot be asked.
        """
        return self._executor.execute(configure.configuration(self._context))

    def purge(self, state: State | None = None) -> int:
        """Discard what is in a state now (pending, ready, retry or dead; all of these when None); return how many."""
        return self._executor.execute(manage.purge(self._context, manage.PURGEABLE if state is None else [state]))

    def collect_garbage(self) -> int:
        """Delete the payloads of discarded messages, as consumers and receivers do all the time; return how many."""
        return self._executor.execute(garbage.collect(self._context))

    def stats(self) -> QueueStats:
        """Count everything."""
        return self._executor.execute(inspect.stats(self._context))

    def sample(self) -> bool:
        """Keep the counts of this minute for `samples`, unless they are kept; return whether they were not.

        Consumers do so all the time: it is for who watches a queue that may have none.
        """
        return self._executor.execute(counts.sample(self._context))

    def samples(self, since: dt.datetime | None = None) -> list[Sample]:
        """Return what was counted of the queue, oldest first: every minute of the last hour, and every ten of the day.

        Args:
            since: an aware datetime: those of then or later only.

        Raises:
            InvalidTime: `since` is naive, or no datetime.
        """
        return self._executor.execute(counts.samples(self._context, since))

    def consumers(self) -> list[ConsumerInfo]:
        """Return the consumers that were seen within the last hour and have not ended in good order, by name."""
        return self._executor.execute(presence.consumers(self._context))

    def upcoming(self, window: Seconds = 3600, bucket: Seconds = 300) -> list[Upcoming]:
        """Count what falls due within `window` from now, in buckets: seconds or timedeltas, 1 to 500 buckets.

        The last bucket ends where the window does, or behind it. What is due already counts in the first; what is
        ready or runs counts in none.

        Raises:
            InvalidInput: a time is out of range, or there would be more buckets.
        """
        return self._executor.execute(counts.upcoming(self._context, window, bucket))

    def _send_shared(self, encoded: Sequence[encode.EncodedMessage]) -> Sequence[SentMessage | DelayqError]:
        return self._executor.execute(send.send_shared(self._context, encoded))
