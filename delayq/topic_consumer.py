# Made from delayq/aio/topic_consumer.py by `make faces`: change that file.
"""The consumer of topics: runs a handler on the records of one of a topic's groups."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from delayq.errors import InvalidInput
from delayq.model.backoff import Backoff, exponential, seeing_errors
from delayq.model.middleware import Middleware
from delayq.model.outcome import check_handler
from delayq.model.record import Record
from delayq.model.typed_payload import adapt
from delayq.model.units import Seconds, lease_ms
from delayq.model.validation import MOST_HANDLERS, check_limit
from delayq.protocol.topic_commands import REQUEUED
from delayq.runtime.driver import Driver, WakeSignal
from delayq.runtime.event_handler import one_by_one
from delayq.runtime.group_member import GroupMember
from delayq.runtime.handler_registry import surrounded
from delayq.runtime.handler_stack import make_single_pool
from delayq.runtime.hooks import Hooks
from delayq.runtime.lifecycle import Lifecycle
from delayq.runtime.record_leases import RecordLeases
from delayq.runtime.time_limit import TimeLimit
from delayq.runtime.topic_engine import TopicEngine
from delayq.topic_group import Group


class TopicConsumer(Lifecycle):
    """Takes the records of a topic for one of its groups and runs a handler for each.

    It survives exceptions of handlers and restarts of the server. It takes over records of dead members at the start
    and every half `ack_timeout`. A failed record waits for its backoff while others are handled; while 1,000 wait, no
    new ones are taken, except by `drain`.

    Args:
        group: from `Topic.group`. Close its topic only after the consumer has ended.
        handler: called with each `Record`, or with its payload if it is annotated with the payload's type (see
            `Queue.handler`). When it returns, the record is acked. Returning False or raising retries the record after
            the backoff; after `max_deliveries` deliveries, it becomes a dead letter of the group. Reject makes it one
            at once, RetryAfter sets the wait.
        concurrency: handlers that run at the same time: 1 to 10,000.
        ack_timeout: seconds (0.001 to 86,400) or a timedelta after which others take over the records of a dead
            consumer; live consumers renew theirs three times as often.
        backoff: a function that returns how long a record waits after a failure. It gets the number of the delivery
            and, if it takes a second argument, the error that was raised (or None). None for an exponential one.
        shutdown_timeout: how long running handlers may take at the end, seconds or a timedelta. Then their records are
            handed back without counting a delivery.
        timeout: time limit of a handler with its middleware, seconds (0.001 to 86,400) or a timedelta; None for no
            limit. A thread cannot be stopped: it is logged and counted, and continues while its record is renewed.
        middleware: its functions for deliveries run around the handler and get the record; its functions for the start
            and the stop of a consumer run, too.
        name: of this consumer, 1 to 256 bytes, unique within the group: when it comes back, it first handles what
            it had not acked. None for host, process and a random part; such a consumer leaves the group when it ends.

    Attributes:
        handled: deliveries handled so far.
        failed: of these, the ones that did not end in an ack.
        overran: deliveries that exceeded `timeout` so far.
        abandoned: records that the last run left to others because a second signal ended it immediately.
        recreated: how often it has created its group again, because it was lost: see `run`.
        group: the group that it consumes for.

    Raises:
        InvalidInput: naming the argument.
    """

    def __init__(
        self,
        group: Group,
        handler: Callable[[Any], Any],
        *,
        concurrency: int = 8,
        ack_timeout: Seconds = 30,
        backoff: Backoff | None = None,
        shutdown_timeout: Seconds = 30,
        timeout: Seconds | None = None,
        middleware: Middleware | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(group, Group):
            raise InvalidInput(f"group: expected a Group from Topic.group, got {group!r}")
        check_handler(handler)
        check_limit(concurrency, "concurrency", most=MOST_HANDLERS)
        self.group = group
        self.recreated = 0
        self._time_limit = None if timeout is None else TimeLimit(lease_ms(timeout, "timeout") / 1000)
        around = Middleware.of(middleware)
        self.handler: Callable[[Record], Any] = surrounded(adapt(handler), around, self._time_limit)
        if group._context.is_packed:
            self.handler = one_by_one(self.handler)
        super().__init__(name, concurrency, shutdown_timeout, Hooks.of([around], awaits=False))
        self._member = GroupMember(
            group.name,
            self.name,
            name is not None,
            group.max_deliveries,
            lease_ms(ack_timeout, "ack_timeout") / 1000,
            seeing_errors(exponential() if backoff is None else backoff),
        )

    def run(self, *, burst: bool = False, max_records: int | None = None) -> int:
        """Consume until `stop`, SIGTERM, SIGINT or SIGHUP; then finish running handlers and hand back the rest.

        Records that have not started, or wait for their backoff, go to the next member that looks for leftovers. A
        second signal ends it immediately: running records are taken over after `ack_timeout`. (Signals are handled in
        the main thread only; the program's own handlers are called too. `start` leaves signals alone.)

        If the group is lost, for example because the server has restarted without its data, it creates the group
        again, after the last record that it knows to have been handed out, or else at the first one, and logs an
        error. It does not do this if somebody has called `Group.destroy`.

        Args:
            burst: return when no record can be handled immediately.
            max_records: return after this many deliveries, 1 or more.

        Returns:
            The number of deliveries.

        Raises:
            UnknownGroup: the group does not exist at the start, or was destroyed.
            StartFailed: a `Middleware.on_start` function failed.
            ServerError: the first connection failed; later losses are retried.
        """
        if max_records is not None:
            check_limit(max_records, "max_records", most=10**12)
        return self._run(self._new_run(burst, max_records))

    def drain(self) -> int:
        """Handle all records, and those that arrive meanwhile; return the number of deliveries.

        Failed records that wait for their backoff are left to the next consumer.

        Raises:
            LoginRefused: a right is missing; this call does not wait until somebody grants it.
        """
        return self.run(burst=True)

    def _note_recreated(self) -> None:
        self.recreated += 1

    @property
    def overran(self) -> int:
        return self._time_limit.count if self._time_limit else 0

    def _watching(self) -> AbstractContextManager[object]:
        return self._time_limit.watching() if self._time_limit else nullcontext()

    @property
    def _labels(self) -> dict[str, str]:
        return {"topic": self.group.topic, "group": self.group.name, "consumer": self.name}

    def _new_run(self, burst: bool = False, most: int | None = None) -> Driver:
        self._check_idle()
        signal, leases = WakeSignal(), RecordLeases(self._member.ack_timeout)
        pool = make_single_pool(self.handler, self._concurrency, leases.stands, signal.wake_waiting)
        engine = TopicEngine(
            self.group._context, self._member, leases, pool, REQUEUED, burst, most, self._note_recreated
        )
        run = Driver(engine, pool, self.group._executor, signal)
        self._connect(run)
        return run
