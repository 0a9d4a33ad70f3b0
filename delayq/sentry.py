"""Sentry: errors of handlers, a trace from each send to its deliveries, and check-ins of schedules.

It needs the package sentry-sdk (the extra ``sentry``); without `sentry_sdk.init`, nothing is recorded.
"""

from __future__ import annotations

import math
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from delayq.errors import Reject, RetryAfter, ReturnedFalse
from delayq.instrumentation import Harmless, HasMiddleware, delivery_number, destination
from delayq.model import outcome as oc
from delayq.model.cron_expression import ALIASES, recurrence
from delayq.model.delivery import Delivery, Outgoing
from delayq.model.extras import install
from delayq.model.message_info import MessageInfo
from delayq.model.middleware import Sending
from delayq.model.occurrence import Plan
from delayq.model.record import Record

try:
    import sentry_sdk
    from sentry_sdk import crons
    from sentry_sdk.utils import event_from_exception
except ImportError as error:
    raise ImportError(f"delayq.sentry needs sentry-sdk: {install('sentry')}") from error

TRACE, BAGGAGE = "sentry-trace", "baggage"
ORIGIN = "auto.queue.delayq"
WITHOUT_HANDLER = (
    oc.REASON_CONSUMER_LOST,
    oc.REASON_PAYLOAD_MISSING,
    oc.REASON_UNFETCHED,
    oc.REASON_UNKNOWN_TASK,
    oc.REASON_UNREADABLE,
)
"""Reasons of dead letters for which no handler raises an error that could be captured."""
ENDED = ("TimeoutError: the handler took longer than ", "ProcessDied: ")
"""Beginnings of errors of handlers that were stopped from outside: an async one, or one in a process."""
DECISIONS = (Reject, RetryAfter, ReturnedFalse)
SLUG_CHARS = 50  # Sentry's limit


class Sentry:
    """Reports the sends and deliveries of the queues that it instruments.

    A send within a transaction is a span ``queue.publish``; its trace travels in the headers `sentry-trace` and
    `baggage`. Each delivery is a transaction ``queue.process`` of that trace, named for its task or its queue. The
    error that a handler raises is an event with the facts of the message, and so is a message that dies without a
    handler, such as after it has crashed its consumers. Reject and RetryAfter are decisions of the handler, and are not
    reported.

    Args:
        send_payload: add the payload, and the local variables of stack frames, which often hold it.
        only_dead: report an error only if its message becomes a dead letter, and not when it will be retried.
        monitor_schedules: send check-ins for the occurrences of schedules, and create a monitor for each schedule.
            Those with seconds have none, as Sentry's monitors count in minutes.
    """

    def __init__(self, *, send_payload: bool = False, only_dead: bool = False, monitor_schedules: bool = False) -> None:
        self._send_payload = send_payload
        self._only_dead = only_dead
        self._monitors = monitor_schedules

    def instrument(self, queue: HasMiddleware) -> None:
        """Report a queue and all that share its middleware; call it before making a `Consumer` or adding middleware."""
        queue.middleware.around_send(lambda sending: Harmless(self.sending(sending)))
        queue.middleware.around_delivery(lambda message: Harmless(self.processing(message)))
        queue.middleware.on_dead(self._died)

    @contextmanager
    def sending(self, sending: Sending) -> Iterator[None]:
        """Run a send within its span, and put the trace into the headers of its messages."""
        with sentry_sdk.start_span(op="queue.publish", name=sending.queue, origin=ORIGIN) as span:
            sending.messages = [_with_trace(message) for message in sending.messages]
            span.set_data("messaging.system", "delayq")
            span.set_data("messaging.destination.name", sending.queue)
            if sending.is_batch:
                span.set_data("messaging.batch.message_count", len(sending.messages))
            yield
            if sending.sent and not sending.is_batch:
                span.set_data("messaging.message.id", sending.sent[0].id)

    @contextmanager
    def processing(self, message: Delivery[Any] | Record) -> Iterator[None]:
        """Run the handling of a message or record within its transaction, also for messages from `Queue.receive`."""
        known, source = _facts(message), destination(message)
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            self._describe(scope, known, message)
            transaction = sentry_sdk.continue_trace(
                _trace_of(message.headers), op="queue.process", name=known.get("task") or source, source="task",
                origin=ORIGIN,
            )  # fmt: skip
            with sentry_sdk.start_transaction(transaction, custom_sampling_context={"delayq": known}) as span:
                for name, value in _span_data(message, source).items():
                    span.set_data(name, value)
                started, check_in = time.monotonic(), self._check_in(message)
                if check_in:
                    crons.capture_checkin(**check_in, status="in_progress")
                status = "ok"
                try:
                    yield
                except BaseException as error:
                    status = self._failed(scope, message, error)
                    raise
                finally:
                    if check_in and status:
                        seconds = time.monotonic() - started
                        crons.capture_checkin(**check_in, status=status, duration=seconds)

    def _failed(self, scope: sentry_sdk.Scope, message: Delivery[Any] | Record, error: BaseException) -> str:
        """Report an error; return the status of the occurrence: "" if it will be retried or handed back."""
        if not isinstance(error, Exception):  # the consumer stops, and hands the message back
            return ""
        found = oc.of_error(error, message)
        if isinstance(found, oc.Unknown):
            return ""
        is_dead = isinstance(found, oc.Dead)
        if isinstance(found, oc.Failed) and isinstance(message, Delivery):
            is_dead = message.dies_of(found.counts)
        is_reported_later = isinstance(found, oc.Dead) and found.reason in WITHOUT_HANDLER
        if (is_dead or not self._only_dead) and not (is_reported_later or isinstance(error, DECISIONS)):
            event, hint = event_from_exception(
                sys.exc_info(),
                client_options=sentry_sdk.get_client().options,
                mechanism={"type": "delayq", "handled": False},
            )
            if not self._send_payload:
                _drop_variables(event)
            scope.capture_event(event, hint=hint)
        return "error" if is_dead else ""

    def _died(self, info: MessageInfo) -> None:
        """Report a message that died without an error that its handler raised."""
        if info.reason not in WITHOUT_HANDLER and not (info.error or "").startswith(ENDED):
            return
        with sentry_sdk.isolation_scope() as scope:
            self._describe(scope, _facts_of_dead(info), info)
            scope.set_context("dead letter", {"reason": info.reason, "error": info.error})
            scope.capture_message(f"message dead-lettered: {info.reason}", level="error")
            if check_in := self._check_in(info):
                crons.capture_checkin(**check_in, status="error")

    def _describe(
        self, scope: sentry_sdk.Scope, known: dict[str, Any], message: Delivery[Any] | Record | MessageInfo
    ) -> None:
        if self._send_payload:
            try:
                known = known | {"payload": message.payload}
            except Exception as error:  # noqa: BLE001  # it cannot be read, and the delivery says so
                known = known | {"payload": f"unreadable: {error}"}
        scope.set_context("delayq", known)
        for name in ("queue", "topic", "task", "schedule"):
            if known.get(name) is not None:
                scope.set_tag(f"delayq.{name}", known[name])

    def _check_in(self, message: Delivery[Any] | Record | MessageInfo) -> dict[str, Any]:
        """Return what the check-ins of an occurrence have in common; empty if it has none.

        All attempts at a slot, in any process, are one check-in.
        """
        found = None if isinstance(message, Record) else message.occurrence
        if not self._monitors or found is None or not found.slot_ms or isinstance(message, Record):
            return {}
        config = monitor_config(found.plan)
        slug = monitor_slug(message.queue, found.name)
        one = uuid.uuid5(uuid.NAMESPACE_OID, f"{message.queue}/{message.id}").hex
        return {"monitor_slug": slug, "check_in_id": one, "monitor_config": config} if config else {}


def monitor_slug(queue: str, schedule: str) -> str:
    """Return the slug of a schedule's monitor, such as ``jobs-nightly``: in Sentry's characters, at most 50."""
    return re.sub(r"[^a-z0-9_-]+", "-", f"{queue}-{schedule}".lower()).strip("-_")[:SLUG_CHARS]


def monitor_config(plan: Plan) -> dict[str, Any] | None:
    """Return the settings of a schedule's monitor; None if Sentry has no such schedule, as it counts in minutes."""
    when = plan.when.strip()
    schedule: dict[str, Any]
    if when.lower().startswith("every"):
        minutes, rest = divmod(recurrence(when).after(0) or 0, 60_000)
        if rest:
            return None
        schedule = {"type": "interval", "value": minutes, "unit": "minute"}
    elif len((fields := ALIASES.get(when.lower(), when)).split()) == 5:
        schedule = {"type": "crontab", "value": fields}
    else:
        return None
    config: dict[str, Any] = {"schedule": schedule, "timezone": plan.timezone}
    return config | ({"checkin_margin": math.ceil(plan.jitter_ms / 60_000) + 1} if plan.jitter_ms else {})


def _facts(message: Delivery[Any] | Record) -> dict[str, Any]:
    """Return what is known of a delivery, without what its sender put into it."""
    if isinstance(message, Record):
        return {"topic": message.topic, "id": message.id, "delivery": message.deliveries}
    return {
        "queue": message.queue,
        "id": message.id,
        "task": message.task,
        "schedule": message.schedule,
        "attempt": message.attempt,
        "max_retries": message.max_retries,
        "created_at": message.created_at.isoformat(),
        "due_at": message.due_at.isoformat(),
        "lateness": message.lateness,
    }


def _facts_of_dead(info: MessageInfo) -> dict[str, Any]:
    names = ("queue", "id", "task", "schedule", "attempts", "max_retries")
    return {name: getattr(info, name) for name in names}


def _span_data(message: Delivery[Any] | Record, source: str) -> dict[str, Any]:
    data: dict[str, Any] = {
        "messaging.system": "delayq",
        "messaging.destination.name": source,
        "messaging.message.id": message.id,
        "messaging.message.retry.count": max(0, delivery_number(message) - 1),
    }
    if isinstance(message, Delivery):
        data["messaging.message.body.size"] = len(message.body)
        data["messaging.message.receive.latency"] = message.lateness * 1000
    return data


def _trace_of(headers: object) -> dict[str, str]:
    """Return the headers of a message that continue a trace."""
    found = headers if isinstance(headers, Mapping) else {}
    return {name: found[name] for name in (TRACE, BAGGAGE) if isinstance(found.get(name), str)}


def _with_trace(message: Outgoing) -> Outgoing:
    """Return the message with the current trace in its headers, unless it has one (or headers that are refused)."""
    if not isinstance(message.headers, Mapping | None) or TRACE in (message.headers or {}):
        return message
    trace, baggage = sentry_sdk.get_traceparent(), sentry_sdk.get_baggage()
    if trace is None:
        return message
    headers = {**(message.headers or {}), TRACE: trace}
    if baggage:
        other = headers.get(BAGGAGE)  # such as OpenTelemetry's
        headers[BAGGAGE] = f"{other},{baggage}" if isinstance(other, str) and other else baggage
    return replace(message, headers=headers)


def _drop_variables(event: Any) -> None:
    """Remove the local variables of all stack frames: they hold the payload, and what was made of it."""
    for raised in event.get("exception", {}).get("values", ()):
        for frame in (raised.get("stacktrace") or {}).get("frames", ()):
            frame.pop("vars", None)
