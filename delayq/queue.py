# Made from delayq/aio/queue.py by `make faces`: change that file.
"""A queue: sending, receiving and managing."""

from __future__ import annotations

import datetime as dt
import math
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Never, ParamSpec, Self, TypeVar, overload

from msgspec import UNSET

from delayq.late_import import late_import
from delayq.message_group import MessageGroup, with_results
from delayq.model import validation
from delayq.model.backoff import Backoff
from delayq.model.configuration import Configuration, Count, Events, Rate, Usage, Waits, changes, wishes
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.delivery import OnConflict, Outgoing, SentMessage, unknown_option
from delayq.model.envelope import MAX_PAYLOAD_BYTES, Headers
from delayq.model.event import Event
from delayq.model.handler_progress import HandlerProgress
from delayq.model.message import Message
from delayq.model.message_group import OnDead, SentGroup
from delayq.model.message_ids import new_id
from delayq.model.message_info import MessageInfo
from delayq.model.middleware import Middleware
from delayq.model.occurrence import Missed, make_plan
from delayq.model.other_libraries import (
    CRON,
    OF_QUEUE,
    QUEUE,
    answers_arguments,
    answers_attributes,
    surplus_argument,
)
from delayq.model.outcome import Outcome, check_handler
from delayq.model.placement import PURGEABLE, Cancelled, Rescheduled, State
from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.result import TaskResult, missing
from delayq.model.sample import Sample
from delayq.model.server_guard import labelled
from delayq.model.server_url import redact
from delayq.model.task import RetryFor, TaskDefinition
from delayq.model.typed_payload import adapt
from delayq.model.units import Seconds, lease_ms, milliseconds
from delayq.operations import (
    configure,
    counts,
    encode,
    garbage,
    groups,
    inspect,
    manage,
    paging,
    presence,
    results,
    send,
    settle,
)
from delayq.operations.message_store import message_store
from delayq.operations.paging import Page
from delayq.operations.queue_context import QueueContext, Settings
from delayq.protocol.operation import Operation, Program
from delayq.runtime.made_once import made_once
from delayq.runtime.send_coalescer import SendCoalescer
from delayq.schedules import Schedules
from delayq.task import Task, TaskDecorator
from delayq.transport.executor import Client, Executor
from delayq.transport.open_client import check_client, connect

if TYPE_CHECKING:
    from delayq.dead_letters import DeadLetters
    from delayq.ledger import Ledger
    from delayq.runtime.handler_registry import HandlerRegistry
    from delayq.runtime.receiver import Receiver
    from delayq.runtime.result_waits import ResultWaits

P = ParamSpec("P")
T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[[Any], Any])
Scheduled = TypeVar("Scheduled", bound=Callable[[Any], Any] | Task[..., Any, Any])


@answers_attributes(OF_QUEUE)
class Queue:
    """A queue of messages, each delivered at its time to at least one consumer.

    It connects at the first call. Several threads may share a queue.

    Args:
        name: 1 to 128 bytes, printable, without braces and ``#``.
        url: of the server. Without `url` and `redis`: DELAYQ_URL, or else the embedded store.
        redis: a client to use instead of `url`.
        prefix: of all keys.
        lease: visibility timeout, seconds or a timedelta, 0.001 s to a day: a message is redelivered if its lease is
            not renewed within this time.
        max_retries: deliveries after the first one, 0 to 1,000,000, for messages that this program sends without it.
            What `configure` has stored takes precedence, and a difference is logged once. The default is 5.
        backoff: the waits before retries of messages that fail in this program: one of `delayq.backoff`, or a
            function that returns seconds. It gets the number of the failed attempt and, if it takes a second
            argument, the error that was raised or nacked with, or None. What `configure` has stored takes precedence.
            Default: 10 s, tripled each time, at most an hour, with 10 % of jitter; a message that always fails
            becomes a dead letter after about 20 minutes.
        shards: the number of hash slots that the queue uses, 1 to 1,024; None for the number recorded in Redis.
        max_payload: maximum size of a payload, bytes, 1 or more.
        middleware: a Middleware to share with other queues; by default, the queue has its own.
        concurrency_key: a function from a due message to its key, a text of 1 to 256 bytes; messages with the same
            key share the limit per key. None means no limit for this message.
        dead_retention: how long the queue and its ledger's groups keep dead letters, seconds (0 or more) or a
            timedelta; None for no limit.
        horizon: seconds or a timedelta: messages due later than this after their send wait in `lake`, until a load
            moves them into Redis; see docs/far-future.md. None turns it off.
        lake: a folder that all clients share, or a URI that pyarrow knows, such as ``s3://bucket/folder``.
        rate, concurrency, concurrency_per_key, events: as in `configure`. This client stores them when it first
            sends, consumes, receives or configures, unless a value is stored already. Later, only `configure` changes
            or removes them; a difference is logged once.
        clock: for tests: a function that returns the time, ms, that the scripts use instead of the server's.

    Raises:
        InvalidInput: naming the argument. Calls raise it too, and ServerError if the server fails.
    """

    @answers_arguments("Queue", QUEUE)
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
        limits = wishes(rate=rate, concurrency=concurrency, concurrency_per_key=concurrency_per_key, events=events)
        settings = Settings(lease, max_retries, backoff, max_payload, dead_retention, limits, concurrency_key)
        self.name = name
        self._context = QueueContext(name, prefix, shards, settings, clock or str)
        self._context.middleware = Middleware.of(middleware)
        self._server = redact(str(url)) if url is not None else None if redis is None else "a client of redis-py"
        self._store = message_store(self._context, horizon, lake)
        label = labelled(f"queue {name}", redis)
        self._executor = Executor(lambda: connect(url) if redis is None else redis, redis is not None, label)
        self._context.spans_nodes = self._executor.spans_nodes
        self._context.is_away = self._executor.is_away

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def server(self) -> str | None:
        """The server that `url` or `redis` names, without secrets; None if it is that of DELAYQ_URL or embedded."""
        return self._server

    @made_once
    def dead(self) -> DeadLetters:
        """The dead letters: list, requeue, redrive, edit or purge them, and count their causes."""
        with late_import:
            from delayq.dead_letters import DeadLetters  # noqa: PLC0415
        return DeadLetters(self._context, self._executor)

    @made_once
    def schedules(self) -> Schedules:
        """The schedules: add, list, pause, resume, run or remove them, and list their next slots."""
        return Schedules(self._context, self._executor)

    @property
    def middleware(self) -> Middleware:
        """The functions that run around each delivery and each send; register them with its methods."""
        return self._context.middleware

    @made_once
    def events(self) -> Ledger:
        """The ledger as a topic, with a record for each transition of a message, once `configure(events=…)` is on."""
        with late_import:
            from delayq.ledger import Ledger  # noqa: PLC0415
        return Ledger(self._context, self._executor)

    @made_once
    def handlers(self) -> HandlerRegistry:
        """The functions that handle its messages."""
        with late_import:
            from delayq.runtime.handler_registry import HandlerRegistry  # noqa: PLC0415
        return HandlerRegistry(self.name)

    @made_once
    def _coalescer(self) -> SendCoalescer:
        return SendCoalescer(lambda batch: self._executor.execute(send.send_shared(self._context, batch)))

    @made_once
    def _receiver(self) -> Receiver[Message]:
        with late_import:
            from delayq.runtime.receiver import Receiver  # noqa: PLC0415
        return Receiver(self._context, self._executor, partial(Message, self))

    @made_once
    def _waits(self) -> ResultWaits:
        with late_import:
            from delayq.runtime.result_waits import ResultWaits  # noqa: PLC0415
        return ResultWaits(self._context, self._executor, self._store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this queue has opened; a client that you passed in stays open."""
        made = vars(self)  # what was used
        if "_receiver" in made:
            self._receiver.close()
        if "_waits" in made:
            self._waits.close()
        if "_coalescer" in made:
            self._coalescer.close()
        if "events" in made:
            self.events.close()
        self._executor.close()

    def execute(
        self,
        operation: Callable[Concatenate[QueueContext, P], Operation[T] | Program[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run one of `delayq.operations` on this queue: ``queue.execute(function, …)``; it gets the context first.

        The command line and the dashboard use it where this class has no method. Operations may change with any
        version.
        """
        return self._executor.execute(operation(self._context, *args, **kwargs))

    def send(
        self,
        payload: Any,
        *surplus: Never,
        delay: Seconds | None = None,
        at: dt.datetime | None = None,
        id: str | None = None,  # the public name
        on_conflict: OnConflict = "ignore",
        expires_in: Seconds | None = None,
        max_retries: int | None = None,
        headers: Headers | None = None,
        unique_for: Seconds | None = None,
        timeout: Seconds | None = None,
        task: str | None = None,
        results: Seconds | None = None,
        wait_replicas: int = 0,
        **unknown: Never,
    ) -> SentMessage:
        """Send a message; the options are those of `Outgoing`.

        Args:
            wait_replicas: return after this many replicas have confirmed it, within 3 seconds.

        Raises:
            InvalidInput: an argument is out of range; nothing was stored.
            QueueFull: the queue holds its `max_length`; nothing was stored, nor reserved with `unique_for`.
            DuplicateMessage: on_conflict="error", and the id exists.
            NotReplicated: the message is stored, but on fewer replicas.
        """
        if surplus or unknown:
            raise surplus_argument("send", "one payload", surplus[0]) if surplus else unknown_option(*unknown)
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
            task=task,
            results=results,
        )
        if (  # the short way needs an open queue and a plain send
            type(wait_replicas) is not int
            or wait_replicas
            or self._context.middleware.sends
            or (self._store.defers and self._store.may_defer(message))
            or time.monotonic() > self._context.open_until
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
        """Send any number of messages, in batches; the results are in the same order.

        All are checked before the first is stored. If the server fails in between, some of them are stored, and the
        error says how many.

        Raises:
            InvalidInput: one of them is out of range; nothing was stored.
            QueueFull: some of them exceed the queue's `max_length`; all others are stored. The error says which are
                not, in `unsent`. It takes precedence over DuplicateMessage: existing messages are in `sent`, with
                `created` False.
            DuplicateMessage: on_conflict="error", and an id exists; all others are stored.
            NotReplicated: too few replicas confirmed a batch, and later batches are not stored. The error says
                which messages are stored, which are not, and what to send again.
        """
        return self._executor.execute(self._store.send_many(messages, wait_replicas))

    def send_group(
        self,
        messages: Iterable[Outgoing],
        then: Outgoing | None = None,
        *,
        id: str | None = None,  # the public name
        dead: OnDead = "wait",
    ) -> SentGroup:
        """Send messages as a group, all or none, with one that becomes due once all others have ended.

        A member ends when it is acked, cancelled, purged, replaced, or expires. The group is stored in one step; its
        members do not use the queue's horizon. In a queue with shards, a group lives on one of them: leave ids out.

        Args:
            messages: up to 1,000, 4 MiB together with `then`. Without any, `then` is due immediately.
            then: its delay counts from the end of the last member, `expires_in` from now. It is held until then:
                `Message.group` says what it waited for. None to only count the members.
            id: of the group, 1 to 256 bytes; None for a random one. If a group has this id, nothing is changed, and
                `created` is False in the result.
            dead: "wait" lets dead letters hold the group until they are requeued and acked, or deleted; "continue"
                counts a member as ended once it is dead.

        Raises:
            InvalidInput: an argument is out of range, or a message has `unique_for` or ``on_conflict="replace"``;
                OtherShard, if ids belong to different shards. Nothing was stored.
            DuplicateMessage: the id of a message exists; nothing was stored.
            QueueFull: the queue has no room for all; nothing was stored.
        """
        return self._executor.execute(groups.send_group(self._context, messages, then, id, dead))

    def group(self, id: str) -> MessageGroup | None:
        """Return how far a group is; None if it does not exist, or ended more than an hour ago."""
        found = self._executor.execute(groups.group(self._context, id))
        return found and with_results(*found, self._member_results)

    def _member_results(self, ids: Sequence[str], sent_at: dt.datetime) -> list[Any]:
        return self._executor.execute(groups.member_results(self._context, ids, sent_at))

    def cancel_group(self, id: str) -> int:
        """Cancel the message that waits for a group, and its members; return how many messages were cancelled.

        Running members are not stopped and do not count, but they will not be retried. If the call fails in between,
        call it again. Members whose membership another program has removed are not reached.
        """
        return self._executor.execute(groups.cancel_group(self._context, id))

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
        """Take due messages; settle each with its `ack`, `nack`, `release` or `reject`.

        Args:
            max_messages: 1 to 500.
            wait: seconds (0 or more) or a timedelta to wait for the first one. If the queue's consumers are gone, the
                call may once wait up to 6 s longer for what they held.
            lease: seconds or a timedelta; None for the queue's lease. `Message.extend` extends it.

        Returns:
            Retries first, then new messages, each earliest due first; empty if none came in time.

        Raises:
            ServerUnreachable: the queue was closed while the call waited, or a node of a cluster has not answered
                yet and may have handed out messages. The next call returns these.
        """
        validation.check_limit(max_messages, "max_messages", most=validation.MAX_RECEIVED)
        leased = lease_ms(self._context.settings.lease if lease is None else lease)
        return self._receiver.receive(max_messages, leased, milliseconds(wait, "wait") / 1000)

    def ack(self, messages: Message | Sequence[Message]) -> list[bool]:
        """Ack messages in one round trip; return for each whether it was acked: False if its receipt was stale.

        Raises:
            InvalidInput: one of them was received before this process was forked; nothing was acked.
        """
        return self._executor.execute(settle.ack(self._context, messages, Message))

    def settle(self, message: Message, outcome: Outcome) -> None:
        """Settle one delivery; raise StaleReceipt if it has ended."""
        self._executor.execute(settle.settle_one(self._context, message, outcome))

    def extend(self, message: Message, seconds: Seconds) -> None:
        """Make a delivery's lease end `seconds` from now; raise StaleReceipt if the delivery has ended."""
        self._executor.execute(settle.extend(self._context, message, seconds))

    def report(self, message: Message, progress: HandlerProgress) -> None:
        """Note how far a handler is; raise StaleReceipt if its delivery has ended. See `Message.progress`."""
        self._executor.execute(settle.report(self._context, message, progress))

    @overload
    def handler(self, function: Handler) -> Handler: ...

    @overload
    def handler(self) -> Callable[[Handler], Handler]: ...

    def handler(self, function: Any = ...) -> Any:
        """Register the function that a `Consumer` of this queue calls for each message (a decorator).

        ``@queue.handler()`` does the same.

        Returning acks the message; returning `Ack(then=[…])` also sends the messages in the list, in the same step.
        Returning False or raising nacks it with the queue's backoff. Raising `Reject` makes it a dead letter; raising
        `RetryAfter` retries it after that time.

        If the argument is annotated as `Message[Order]`, the function gets messages whose payload is an Order; if
        annotated as Order, it gets the payload. A payload that does not match makes its message a dead letter.

        Raises:
            InvalidInput: it is not callable; it is a coroutine or generator function; its annotation cannot be resolved
                or is not a type for payloads; or the queue already has a handler.
        """
        if function is ...:
            return self.handler
        check_handler(function)
        self.handlers.register(adapt(function))
        return function

    @overload
    def batch_handler(self, function: Handler, /) -> Handler: ...

    @overload
    def batch_handler(
        self, function: None = None, /, *, max_messages: int = 500, max_wait: Seconds = 0.1
    ) -> Callable[[Handler], Handler]: ...

    def batch_handler(self, function: Any = None, /, *, max_messages: int = 500, max_wait: Seconds = 0.1) -> Any:
        """Register the function that a `Consumer` of this queue calls with lists of messages (a decorator).

        Without parentheses, as ``@queue.batch_handler``, the defaults apply.

        Returning None acks all of them; raising fails each of them, as in `handler`. To decide for each message,
        return a mapping from ids to verdicts: True, False, ``Ack(then=[…])``, or an error such as ``Reject("why")``,
        which counts as raised for this message only. Messages that are not in the mapping are acked.

        If the argument is annotated as ``list[Message[Order]]``, the function gets messages whose payload is an
        Order; if annotated as ``list[Order]``, it gets the payloads. A payload that does not match makes its own
        message a dead letter.

        Args:
            max_messages: maximum size of a batch, 1 to 10,000.
            max_wait: seconds (0 to 86,400) or a timedelta that the first message of a batch waits for others.

        Raises:
            InvalidInput: a number is out of range, or `handler` would raise it.
        """
        with late_import:
            from delayq.model.batch_handler import BatchHandler, check_sizes  # noqa: PLC0415
        check_sizes(max_messages, max_wait)

        def register(function: Handler) -> Handler:
            check_handler(function)
            self.handlers.register(BatchHandler.of(function, max_messages, max_wait))
            return function

        return register if function is None else register(function)

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, T, Coroutine[Any, Any, T]]: ...

    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        timeout: Seconds | None = None,
        expires_in: Seconds | None = None,
        retry_for: RetryFor | None = None,
        results: Seconds | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        timeout: Seconds | None = None,
        expires_in: Seconds | None = None,
        retry_for: RetryFor | None = None,
        results: Seconds | None = None,
    ) -> Any:
        """Register a function that a `Consumer` of this queue calls for each message that names it (a decorator).

        The function becomes a `Task`: call it as before, or send messages with `Task.send`. Their payload is an object
        of its arguments, which may have any type that msgspec knows. Arguments that do not match its annotations make a
        message a dead letter. Any return value acks the message, even False; returning `Ack` and raising mean the same
        as in `handler`.

        A consumer without the task leaves its messages to others for 15 minutes. Then they become dead letters.

        Args:
            name: of the task, 1 to 256 bytes; the function's own when None.
            max_retries, timeout, expires_in: of its messages; as `send` takes them.
            backoff: the waits before retries of this task, where it runs, even if `configure` has stored others; None
                for the queue's.
            retry_for: a class of exceptions, or a tuple of them: after any other exception, the message becomes a dead
                letter. None for all exceptions.
            results: seconds (0.001 s to 366 days) or a timedelta for which what it returns is kept after its end, for
                `SentTask.result`; None to keep nothing. A value that JSON cannot represent makes the message a dead
                letter.

        Raises:
            InvalidInput: the queue has a task with this name; it is a task, or a generator function; it has ``*args``,
                ``**kwargs``, positional-only parameters, or annotations that cannot be resolved; or an option is out
                of range.
        """

        def register(function: Callable[..., Any]) -> Any:
            check_handler(function, is_task=True)
            options = {"max_retries": max_retries, "timeout": timeout, "expires_in": expires_in, "results": results}
            definition = TaskDefinition(function, name, backoff, retry_for, **options)
            self.handlers.task(self._context, definition)
            return Task(definition, self.send, self._result_of)

        return register if function is None else register(function)

    @answers_arguments("cron", CRON)
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
    ) -> Callable[[Scheduled], Scheduled]:
        """Register a function that a `Consumer` of this queue calls at the slots of a schedule (a decorator).

        A consumer stores the schedule when it starts; the options are those of `Schedules.add`. Its result or error
        means the same as in `handler`. It may be a task of this queue: write ``@queue.cron(…)`` above ``@queue.task``.

        Args:
            name: of the schedule; the function's own when None.
            payload: of each occurrence; for a task, a dict of its arguments.

        Raises:
            InvalidInput: naming what is wrong.
        """
        plan = make_plan(when, timezone, missed, grace, start, end, jitter, own=True)
        wanted = name, payload, max_retries, headers, timeout
        return self.handlers.cron(self._context, check_handler, plan, *wanted)

    def cancel(self, id: str, *, running: bool = False) -> Cancelled:
        """Withdraw a waiting or dead message. One that is "in_flight" is not stopped, but will not be retried.

        Args:
            running: also stop its handler, within 2 seconds, if a consumer runs it: then the answer is "stopping". An
                async handler is cancelled; a pool process or a program of `delayq consume --exec` is ended with all
                that it has started, by SIGTERM and then SIGKILL. A thread, or one message of a batch, cannot be ended:
                its `Message.cancelled` becomes true. If the handler returns nevertheless, the message is acked;
                otherwise, it counts as cancelled. A message taken by `receive` is "in_flight", because it cannot be
                stopped.
        """
        return self._executor.execute(self._store.cancel(id, running))

    def reschedule(
        self,
        id: str,
        *surplus: Never,
        delay: Seconds | None = None,
        at: dt.datetime | None = None,
    ) -> Rescheduled:
        """Give a waiting message another due time; "in_flight", "dead" and "unknown" ones are not changed."""
        if surplus:
            raise surplus_argument("reschedule", "one id", surplus[0])
        return self._executor.execute(self._store.reschedule(id, delay, at))

    def now(self, ids: str | Iterable[str]) -> dict[str, Rescheduled]:
        """Make waiting messages due now; their attempts still count.

        Args:
            ids: one id, or several. All are checked before the first message is changed.

        Returns:
            For each id: "rescheduled"; or "in_flight", "dead" or "unknown" if its message was not changed.
        """
        return self._executor.execute(self._store.now(ids))

    def get(self, id: str) -> MessageInfo | None:
        """Return what is known about a message; None if it does not exist."""
        return self._executor.execute(self._store.get(id))

    def why(self, id: str) -> str:
        """Say in one sentence why a message has not been delivered, or what happened to it.

        Possible answers: it is not due yet; the queue is paused; a limit holds it back; others are due earlier; there
        is no consumer; it is running; it waits for its next attempt; it is dead; or it is gone, and the ledger says
        how.
        """
        return self._executor.execute(self._store.why(id))

    def history(self, id: str) -> list[Event]:
        """Return the history of a message from the ledger (`configure`), oldest first, even if the message is gone.

        If an id was used again, this includes all messages that had it. The list is empty without a ledger, or if
        the ledger has no event of the id. This reads the whole ledger, 500 events per call.
        """
        with late_import:
            from delayq.operations import explain  # noqa: PLC0415
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
        """Look at a page of a state, lowest score first, without taking messages; late pages are as fast as early ones.

        Args:
            after: `after` of the previous page; None for the first page.
            before: instead of `after`: `before` of the next page, or "+" for the last page.
            limit: 1 to 500 messages.
            largest: bytes: payload and headers of messages that take more in Redis are not read.
        """
        return self._executor.execute(paging.page(self._context, state, after, before, limit, largest))

    def wish(self, *, events: bool) -> None:
        """Set `events` as the constructor does, unless this queue was made with it."""
        self._context.wish(events)

    def pause(self, seconds: Seconds | None = None) -> None:
        """Stop handing out messages for a time, or until `resume`; sending continues, and running handlers finish.

        If the queue is already paused, the new end replaces the old one.

        Args:
            seconds: 0.001 s to 366 days, as a number or a timedelta, by the server's clock; None until `resume`.

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
        max_length: Count = UNSET,
    ) -> None:
        """Set limits, retries and the ledger for all programs that use the queue.

        Settings that you leave out do not change; None removes one. No constructor overrides this.

        Args:
            rate: maximum deliveries, retries included, in any period: 1 to 100,000 in 1 ms to a day, such
                as "100/s", "5/10s", "20/100ms", "9/min", "500/h" or "10000/d".
            concurrency: maximum messages that are handed out and not settled at any time, 1 to 1,000,000.
            concurrency_per_key: the same per key. Only clients with a `concurrency_key` enforce it; one that receives
                without it logs a warning.
            events: keep a ledger, with an event for each transition of a message: the number of events to keep
                (per shard, give or take a few hundred), 1 to 10,000,000; True for the present number, or else 100,000.
                None or False turns it off and leaves the existing events.
            max_retries: deliveries after the first one, 0 to 1,000,000, for messages sent without it. Each message
                keeps the number that it was sent with. Running programs notice a change within a minute.
            backoff: the waits before retries: one of `delayq.backoff`, or its text, such as
                "exponential:base=10s,factor=3". Running programs notice a change within a minute.
            max_dead: maximum dead letters to keep, 1 to 1,000,000 (each shard keeps an equal part, at least one).
                Consumers and programs that call `receive` purge older ones within a minute.
            max_length: maximum messages that wait or run, 1 to 10,000,000; dead letters do not count. A send beyond it
                raises QueueFull. Retries, requeues, `Ack(then=…)` and schedules are not refused.

        Raises:
            InvalidInput: naming the argument, or limits on a queue with shards; nothing was changed.
        """
        given = changes(
            rate=rate,
            concurrency=concurrency,
            concurrency_per_key=concurrency_per_key,
            events=events,
            max_retries=max_retries,
            backoff=backoff,
            max_dead=max_dead,
            max_length=max_length,
        )
        self._executor.execute(configure.configure(self._context, given))

    def configuration(self) -> Configuration:
        """Return the settings of all programs that use the queue.

        Raises:
            ServerError: the server cannot be asked.
        """
        return self._executor.execute(configure.configuration(self._context))

    def purge(
        self, state: State | Sequence[State] | None = None, progress: Callable[[int], object] | None = None
    ) -> int:
        """Discard the messages that are now in a state, or in several; return how many.

        Args:
            state: "pending", "ready", "retry", "dead" or "held"; None for all of these.
            progress: a plain function, called with the number of messages that each step has discarded.
        """
        states: Sequence[State] = [state] if isinstance(state, str) else PURGEABLE if state is None else state
        return self._executor.execute(manage.purge(self._context, states, progress=progress))

    def collect_garbage(self) -> int:
        """Delete the payloads of discarded messages, as consumers and receivers do regularly; return how many."""
        return self._executor.execute(garbage.collect(self._context))

    def stats(self) -> QueueStats:
        """Return the counts of the queue."""
        return self._executor.execute(inspect.stats(self._context))

    def usage(self) -> Usage:
        """Return how much of its limits the queue uses, and how late its schedules are."""
        return self._executor.execute(inspect.usage(self._context))

    def sample(self) -> bool:
        """Record the counts of this minute for `samples`; return False if they were recorded already.

        Consumers do this regularly; call it to watch a queue that may have no consumer.
        """
        return self._executor.execute(counts.sample(self._context))

    def samples(self, since: dt.datetime | None = None) -> list[Sample]:
        """Return past counts of the queue, oldest first: each minute of the last hour, every ten of the last day.

        Args:
            since: an aware datetime: only samples of this time or later.

        Raises:
            InvalidTime: `since` is naive or not a datetime.
        """
        return self._executor.execute(counts.samples(self._context, since))

    def consumers(self) -> list[ConsumerInfo]:
        """Return the consumers that were seen within the last hour and did not shut down, by name."""
        return self._executor.execute(presence.consumers(self._context))

    def upcoming(self, window: Seconds = 3600, bucket: Seconds = 300) -> list[Upcoming]:
        """Count the messages that fall due within `window` from now, in buckets: seconds or timedeltas, 1 to 500.

        The last bucket ends with the window, or after it. Messages already due count in the first bucket; ready and
        running ones in none.

        Raises:
            InvalidInput: a time is out of range, or there would be more buckets.
        """
        return self._executor.execute(counts.upcoming(self._context, window, bucket))

    def result(self, id: str, wait: Seconds | None = None) -> TaskResult | None:
        """Return the record of a task's message; None if there is none: see `TaskResult`.

        It is the record of the latest message with this id that keeps a result and has ended, or has failed for now.
        `Task.result` returns what a task has returned.

        Args:
            wait: seconds or a timedelta to wait until the message has ended; then the answer is never None.

        Raises:
            ResultTimeout: the message has not ended after `wait`.
            NoResult: with `wait`: the message is gone without a result, or keeps none.
        """
        if wait is None:
            return self._executor.execute(results.latest(self._context, id))
        found = self._waits.found(id, "", milliseconds(wait, "wait") / 1000)
        if found.result is None:
            raise missing(id, found.status)
        return found.result

    def _result_of(self, task: TaskDefinition, id: str, token: str, timeout: Seconds | None) -> Any:
        """Return what a task returned; see `SentTask.result`."""
        seconds = math.inf if timeout is None else milliseconds(timeout, "timeout") / 1000
        found = self._waits.found(id, token, seconds)
        return task.returned(id, found.status, found.result, found.body)
