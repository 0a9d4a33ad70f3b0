"""Sentry: errors of handlers, a trace from each send to its deliveries, and check-ins of schedules.

It needs the package sentry-sdk (the extra ``sentry``); without `sentry_sdk.init`, nothing is recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
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
from delayq.log import is_interrupt
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
    from sentry_sdk.utils import current_stacktrace, event_from_exception
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
HASH_CHARS = 8


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
        # Before the next line, which makes a span in any case.
        is_traced = sentry_sdk.get_client().is_active() and sentry_sdk.get_current_span() is not None
        with sentry_sdk.start_span(op="queue.publish", name=sending.queue, origin=ORIGIN) as span:
            if is_traced:
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
                status = ""
                try:
                    yield
                    status = _status(message)
                except BaseException as error:
                    status = self._failed(scope, message, error)
                    raise
                finally:
                    if check_in and status:
                        seconds = time.monotonic() - started
                        crons.capture_checkin(**check_in, status=status, duration=seconds)

    def _failed(self, scope: sentry_sdk.Scope, message: Delivery[Any] | Record, error: BaseException) -> str:
        """Report an error; return the status of the occurrence: "" if it will be retried or handed back."""
        if _is_handed_back(error):
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
            self._capture(scope, event, hint)
        if isinstance(message, Delivery) and message.settled:  # by the handler, before it raised the error
            return _status(message)
        return "error" if is_dead else ""

    def _died(self, info: MessageInfo) -> None:
        """Let the occurrence of a dead letter fail; report the message if its handler raised no error."""
        with sentry_sdk.isolation_scope() as scope:
            self._describe(scope, _facts_of_dead(info), info)
            if info.reason in WITHOUT_HANDLER or (info.error or "").startswith(ENDED):
                scope.set_context("dead letter", {"reason": info.reason, "error": info.error})
                event: dict[str, Any] = {"message": f"message dead-lettered: {info.reason}", "level": "error"}
                if sentry_sdk.get_client().options.get("attach_stacktrace"):  # otherwise the SDK adds its own
                    event["threads"] = {"values": [{"stacktrace": current_stacktrace(), "current": True}]}
                self._capture(scope, event)
            if check_in := self._check_in(info):
                crons.capture_checkin(**check_in, status="error")

    def _capture(self, scope: sentry_sdk.Scope, event: Any, hint: dict[str, Any] | None = None) -> None:
        if not self._send_payload:
            _drop_variables(event)
        scope.capture_event(event, hint=hint)

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
    """Return the slug of a schedule's monitor, such as ``jobs-nightly``: in Sentry's characters, at most 50.

    If another schedule could have the same one, it ends with a hash of both names.
    """
    whole = f"{queue}-{schedule}"
    slug = re.sub(r"[^a-z0-9_-]+", "-", whole.lower()).strip("-_")
    if slug == whole and whole.count("-") == 1 and len(slug) <= SLUG_CHARS:
        return slug
    names = f"{queue}#{schedule}"  # no queue's name has a #
    hashed = hashlib.sha256(names.encode()).hexdigest()[:HASH_CHARS]
    start = slug[: SLUG_CHARS - HASH_CHARS - 1].rstrip("-_") or "schedule"  # Sentry refuses a slug of digits only
    return f"{start}-{hashed}"


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
    stacks = [event.get("stacktrace")]
    for kind in ("exception", "threads"):
        stacks += [each.get("stacktrace") for each in (event.get(kind) or {}).get("values", ())]
    for stack in stacks:
        for frame in (stack or {}).get("frames", ()):
            frame.pop("vars", None)


def _is_handed_back(error: BaseException) -> bool:
    """Whether an error ends a handler from outside, and does not come from the handler: `_died` reports what dies."""
    if isinstance(error, asyncio.CancelledError):  # by the consumer's stop, a time limit or `Queue.cancel`
        try:
            task = asyncio.current_task()
        except RuntimeError:  # in a thread, which nothing cancels
            return False
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) or is_interrupt(error)


def _status(message: Delivery[Any] | Record) -> str:
    """Return the status of an occurrence as its handler left it; "" if another delivery of it follows."""
    if not isinstance(message, Delivery) or not (message.failed or message.released):
        return "ok"
    return "" if message.death is None else "error"
