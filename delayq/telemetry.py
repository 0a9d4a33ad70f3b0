"""OpenTelemetry: a span for each send and each delivery, and the context that leads from the one to the other.

The names and attributes are those of the semantic conventions for messaging, version 1.44.0. It needs the package
opentelemetry-api (``pip install 'delayq[otel]'``); without an SDK that is set up, nothing is recorded nor sent along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Any, Protocol

from msgspec.structs import replace

from delayq import __version__
from delayq.model.delivery import Delivery, Outgoing
from delayq.model.middleware import Middleware, Sending
from delayq.model.outcome import error_text
from delayq.model.record import Record

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
except ImportError as error:
    raise ImportError("delayq.telemetry needs opentelemetry-api: pip install 'delayq[otel]'") from error

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
MESSAGE_ID = "messaging.message.id"


class HasMiddleware(Protocol):
    """A queue, sync or async."""

    @property
    def middleware(self) -> Middleware: ...


class Telemetry:
    """Traces the sends and the deliveries of the queues that it is added to.

    A send is a span ``send QUEUE``, whose context goes along in the headers (`traceparent`, as the propagators that
    OpenTelemetry is set up with write it). Each delivery is a span ``process QUEUE`` around the handler, with a link to
    that context; the attempts of a message are siblings. A message that has such a header already keeps it.

    Args:
        tracer_provider: the one that is set up for the program when None.
        create_spans: `send_many` makes a span ``create QUEUE`` for each message beside the one for the batch.
        is_child: a delivery is a child of the send, unless a span runs already where the handler is called; else it
            begins a trace of its own, which is better for messages that wait longer than traces are kept together.
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
        """Trace a queue, or all that share its middleware: before a `Consumer` is made, and before other middleware."""
        queue.middleware.around_send(self.sending)
        queue.middleware.around_delivery(self.processing)

    @contextmanager
    def sending(self, sending: Sending) -> Iterator[None]:
        """Be in the span of a send, of which the messages are told."""
        created = self._create(sending) if sending.is_batch and self._create_spans else []
        links = [Link(origin) for message in sending.messages if (origin := _origin(message.headers)).is_valid]
        # It is the origin of the messages that have no other; else a call like any other.
        kind = SpanKind.PRODUCER if len(links) < len(sending.messages) else SpanKind.CLIENT
        attributes: dict[str, Any] = {}
        if sending.is_batch:
            attributes["messaging.batch.message_count"] = len(sending.messages)
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
        """Be in the span of a delivery, also of a record; for messages that `Queue.receive` has returned, too."""
        ambient = trace.get_current_span()
        known = propagate.extract(_texts(message.headers), context.get_current())
        sender = trace.get_current_span(known)
        origin = _origin(message.headers)
        child = self._is_child and origin.is_valid and not ambient.get_span_context().is_valid
        token = context.attach(trace.set_span_in_context(sender if child else ambient, known))
        source, number = _delivered(message)
        attributes = {MESSAGE_ID: message.id, "messaging.delayq.message.delivery_attempt": number}
        links = [Link(origin)] if origin.is_valid else []
        try:
            with self._span("process", source, SpanKind.CONSUMER, attributes, links):
                yield
        finally:
            context.detach(token)

    def _create(self, sending: Sending) -> list[tuple[int, Span, int]]:
        """Make a span for each message without a context; return their positions, and when they are over.

        They are ended once it is known under which id the message was sent.
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


def destination(message: Delivery[Any] | Record) -> str:
    """Return the name of the queue, or the topic, that a delivery is of."""
    return _delivered(message)[0]


def _delivered(message: Delivery[Any] | Record) -> tuple[str, int]:
    """Return the name of the queue, or the topic, and the number of the delivery."""
    if isinstance(message, Record):
        return message.topic, message.deliveries
    return message.queue, message.attempt


def error_type(error: BaseException) -> str:
    """Return the full name of an error's class."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _texts(headers: object) -> dict[str, str]:
    """Return the headers that a propagator can read: it takes them for strings."""
    return {k: v for k, v in headers.items() if isinstance(v, str)} if isinstance(headers, Mapping) else {}


def _origin(headers: object) -> SpanContext:
    """Return the context that headers hold; an invalid one if they hold none."""
    known = propagate.extract(_texts(headers), context.Context())
    return trace.get_current_span(known).get_span_context()


def _with_context(message: Outgoing, current: context.Context) -> Outgoing:
    """Return a message that takes a context along, unless it has one (or headers that the send will refuse)."""
    if _origin(message.headers).is_valid or not isinstance(message.headers, Mapping | None):
        return message
    carrier: dict[str, str] = {}
    propagate.inject(carrier, current)
    return replace(message, headers={**(message.headers or {}), **carrier})
