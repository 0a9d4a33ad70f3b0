"""OpenTelemetry: a span for each send and each delivery, linked by the context in the headers.

The names and attributes are those of the semantic conventions for messaging, version 1.44.0. It needs the package
opentelemetry-api (the extra ``otel``); without a configured SDK, nothing is recorded or propagated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Any

from msgspec.structs import replace

from delayq import __version__
from delayq.instrumentation import Harmless, HasMiddleware, delivery_number, destination
from delayq.model.delivery import Delivery, Outgoing
from delayq.model.extras import install
from delayq.model.middleware import Sending
from delayq.model.outcome import error_text
from delayq.model.record import Record

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
except ImportError as error:
    raise ImportError(f"delayq.telemetry needs opentelemetry-api: {install('otel')}") from error

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
MESSAGE_ID = "messaging.message.id"
TASK_ATTRIBUTE = "messaging.delayq.message.task"


class Telemetry:
    """Traces the sends and deliveries of the queues that it instruments.

    A send is a span ``send QUEUE``. Its context travels in the headers, as the configured propagators write it (such as
    `traceparent`). Each delivery is a span ``process QUEUE`` around the handler, with a link to that context; the
    attempts of a message are siblings. A message that already has such a header keeps it.

    Args:
        tracer_provider: None for the program's own.
        create_spans: `send_many` makes a span ``create QUEUE`` for each message beside the one for the batch.
        is_child: a delivery is a child of the send, unless a span is already active where the handler is called. With
            False, it begins its own trace, which is better for messages that wait longer than traces are kept.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        *,
        create_spans: bool = True,
        is_child: bool = True,
    ) -> None:
        self._tracer = trace.get_tracer("delayq", __version__, tracer_provider, SCHEMA_URL)
        self._create_spans = create_spans
        self._is_child = is_child

    def instrument(self, queue: HasMiddleware) -> None:
        """Trace a queue and all that share its middleware; call it before making a `Consumer` or adding middleware."""
        queue.middleware.around_send(lambda sending: Harmless(self.sending(sending)))
        queue.middleware.around_delivery(lambda message: Harmless(self.processing(message)))

    @contextmanager
    def sending(self, sending: Sending) -> Iterator[None]:
        """Run a send within its span, whose context is put into the messages."""
        created = self._create(sending) if sending.is_batch and self._create_spans else []
        links = [Link(origin) for message in sending.messages if (origin := _origin(message.headers)).is_valid]
        # PRODUCER if the span is the origin of any message; if all have an origin, the send is a plain call.
        kind = SpanKind.PRODUCER if len(links) < len(sending.messages) else SpanKind.CLIENT
        attributes: dict[str, Any] = {}
        if sending.is_batch:
            attributes["messaging.batch.message_count"] = len(sending.messages)
        elif (task := sending.messages[0].task) is not None:
            attributes[TASK_ATTRIBUTE] = task
        try:
            with self._span("send", sending.queue, kind, attributes, links) as span:
                sending.messages = [_with_context(message, context.get_current()) for message in sending.messages]
                yield
                if sending.sent and not sending.is_batch:
                    span.set_attribute(MESSAGE_ID, sending.sent[0].id)
        finally:
            for position, each, ended in created:
                if sending.sent:
                    each.set_attribute(MESSAGE_ID, sending.sent[position].id)
                each.end(ended)

    @contextmanager
    def processing(self, message: Delivery[Any] | Record) -> Iterator[None]:
        """Run the handling of a message or record within its span, also for messages from `Queue.receive`."""
        ambient = trace.get_current_span()
        known = propagate.extract(_texts(message.headers), context.get_current())
        sender = trace.get_current_span(known)
        origin = _origin(message.headers)
        child = self._is_child and origin.is_valid and not ambient.get_span_context().is_valid
        token = context.attach(trace.set_span_in_context(sender if child else ambient, known))
        attributes: dict[str, Any] = {
            MESSAGE_ID: message.id,
            "messaging.delayq.message.delivery_attempt": delivery_number(message),
        }
        if isinstance(message, Delivery) and message.task is not None:
            attributes[TASK_ATTRIBUTE] = message.task
        links = [Link(origin)] if origin.is_valid else []
        try:
            with self._span("process", destination(message), SpanKind.CONSUMER, attributes, links):
                yield
        finally:
            context.detach(token)

    def _create(self, sending: Sending) -> list[tuple[int, Span, int]]:
        """Start a span for each message without a context; return positions, spans and end times.

        They are ended once the ids of the messages are known.
        """
        created = []
        for position, message in enumerate(sending.messages):
            if _origin(message.headers).is_valid:
                continue
            span = self._tracer.start_span(
                f"create {sending.queue}", kind=SpanKind.PRODUCER, attributes=_attributes("create", sending.queue)
            )
            sending.messages[position] = _with_context(message, trace.set_span_in_context(span))
            created.append((position, span, time_ns()))
        return created

    @contextmanager
    def _span(
        self, operation: str, queue: str, kind: SpanKind, attributes: Mapping[str, Any], links: Sequence[Link]
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            f"{operation} {queue}",
            kind=kind,
            attributes={**_attributes(operation, queue), **attributes},
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.record_exception(error)
                span.set_attribute("error.type", error_type(error))
                span.set_status(Status(StatusCode.ERROR, error_text(error)))
                raise


def _attributes(operation: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "delayq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def error_type(error: BaseException) -> str:
    """Return the full name of an error's class."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _texts(headers: object) -> dict[str, str]:
    """Return the headers that a propagator can read: it expects strings."""
    return {k: v for k, v in headers.items() if isinstance(v, str)} if isinstance(headers, Mapping) else {}


def _origin(headers: object) -> SpanContext:
    """Return the context in the headers; an invalid one if there is none."""
    known = propagate.extract(_texts(headers), context.Context())
    return trace.get_current_span(known).get_span_context()


def _with_context(message: Outgoing, current: context.Context) -> Outgoing:
    """Return the message with a context in its headers, unless it has one (or headers that the send will refuse)."""
    if _origin(message.headers).is_valid or not isinstance(message.headers, Mapping | None):
        return message
    carrier: dict[str, str] = {}
    propagate.inject(carrier, current)
    return replace(message, headers={**(message.headers or {}), **carrier})
