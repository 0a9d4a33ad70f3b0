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
from delayq.model.validation import check_group_name, check_limit
from delayq.operations.topics.dead_letters import REQUEUED
from delayq.runtime.driver import Driver, WakeSignal
from delayq.runtime.group_member import GroupMember
from delayq.runtime.handler_stack import make_single_pool, surrounded
from delayq.runtime.hooks import Hooks
from delayq.runtime.lifecycle import Lifecycle
from delayq.runtime.record_leases import RecordLeases
from delayq.runtime.time_limit import TimeLimit
from delayq.runtime.topic_engine import TopicEngine
from delayq.topic_group import Group


class TopicConsumer(Lifecycle):
    """Takes the records of a topic for one of its groups, and runs a handler on each.

    It outlives the handler's exceptions and the server's restarts. What a member of the group held that died is taken
    over, at the beginning and every half `ack_timeout`. A record that has failed waits for its backoff while others are
    handled; but while 1,000 wait, nothing new is taken, except by `drain`.

    Args:
        group: what `Topic.group` returns. Its topic is to be closed after the consumer has ended.
        handler: is called with each `Record`, or with its payload if it is annotated with that one's type (see
            `Queue.handler`); on a thread. When it returns, the
            record is acked. False, or what it raises, has the record handled again after the backoff, and makes it
            a dead letter of the group when this was delivery number `max_deliveries` of the group. Reject makes it
            one at once, RetryAfter sets the wait.
        concurrency: handlers that run at the same time: 1 to 10,000.
        ack_timeout: seconds (0.001 to 86,400) or a timedelta until others take over what a consumer that has died held;
            what is held is renewed three times as often.
        backoff: how long a record waits after a failure, by the number of the delivery and, if it takes a second
            argument, by what the handler has raised (or None); exponential when None.
        shutdown_timeout: seconds or a timedelta that running handlers are given in the end. What they have not
            done by then is handed back, which counts no delivery.
        timeout: seconds (0.001 to 86,400) or a timedelta that a handler may run, middleware included; None for ever.
            A thread cannot be stopped: it is logged and counted, and continues, its record being renewed.
        middleware: what runs around the handler: of a `Middleware`, the functions for deliveries, which are called with
            the record, and those for the start and the stop of a consumer.
        name: of this consumer, 1 to 256 bytes, no other of the group having the same: what it had not acked is handled
            first when it comes back. Host, process and a random part when None; then it leaves the group when it ends.

    Attributes:
        handled: deliveries whose handling has ended, so far.
        failed: of these, those that did not end in an ack.
        overran: deliveries that have run longer than `timeout`, so far.
        abandoned: records that the last run has left to others, as a second signal has ended it at once.
        group: whose records it takes.

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
            raise InvalidInput(f"group {group!r} is no Group: give what Topic.group returns")
        check_handler(handler)
        check_limit(concurrency, "concurrency", most=10_000)
        if name is not None:
            check_group_name(name, "consumer name")
        self.group = group
        self._time_limit = None if timeout is None else TimeLimit(lease_ms(timeout, "timeout") / 1000)
        around = Middleware.of(middleware)
        self.handler: Callable[[Record], Any] = surrounded(adapt(handler), around, self._time_limit)
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
        """Consume until `stop`, SIGTERM or SIGINT; then finish what runs, and hand back the rest.

        What has not started, or waits for its backoff, goes to whoever of the group looks next for what others have
        left. A second signal ends it at once: what ran is taken over after `ack_timeout`. (Signals are watched for in
        the main thread only.)

        Args:
            burst: return when there is nothing to be handled at once.
            max_records: return after so many deliveries, 1 or more.

        Returns:
            the number of deliveries.

        Raises:
            UnknownGroup: the group is gone.
            StartFailed: a function of `Middleware.on_start` has failed.
            ServerError: there was no connection to begin with; a later loss is waited out.
        """
        if max_records is not None:
            check_limit(max_records, "max_records", most=10**12)
        return self._run(self._new_run(burst, max_records))

    def drain(self) -> int:
        """Handle all that there is, and what comes meanwhile; return how many deliveries that took.

        What has failed and waits for its backoff is left to the next consumer.
        """
        return self.run(burst=True)

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
        engine = TopicEngine(self.group._context, self._member, leases, pool, REQUEUED, burst, most)
        run = Driver(engine, pool, self.group._executor, signal)
        self._connect(run)
        return run
