"""Which spans a send and its deliveries create, and how they are linked."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from delayq import Consumer, Message, Middleware, Outgoing, Queue, Reject, Topic, TopicConsumer, backoff
from delayq.errors import DuplicateMessage, InvalidInput
from delayq.model.extras import install
from delayq.telemetry import SCHEMA_URL, Telemetry

Spans = Callable[[], dict[str, list[ReadableSpan]]]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FOREIGN = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("orders", redis=redis_client, backoff=backoff.fixed(0)) as queue:
        yield queue


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    """``spans()``: the ended spans by name, in the order in which they ended."""

    def spans() -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    return spans


@pytest.fixture
def traced(queue: Queue, provider: TracerProvider) -> Queue:
    Telemetry(provider).instrument(queue)
    return queue


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def handle(_: Message) -> None:
    pass


def test_delivery_is_a_child_of_the_send_and_linked_to_it(traced: Queue, spans: Spans, provider: TracerProvider):
    with provider.get_tracer("web").start_as_current_span("POST /orders"):
        sent = traced.send({"n": 1})
    Consumer(traced, handle).drain()
    (send,), (process,), (request,) = spans()["send orders"], spans()["process orders"], spans()["POST /orders"]
    assert send.parent is not None
    assert process.parent is not None
    assert (send.parent.trace_id, send.parent.span_id) == ids(request)
    assert (process.parent.trace_id, process.parent.span_id) == ids(send)
    assert process.parent.is_remote
    assert (linked(send), linked(process)) == ([], [ids(send)])
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(send.attributes or {}) == {
        "messaging.system": "delayq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": sent.id,
    }
    assert dict(process.attributes or {}) == {
        "messaging.system": "delayq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.message.id": sent.id,
        "messaging.delayq.message.delivery_attempt": 1,
    }
    scope = process.instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.schema_url) == ("delayq", SCHEMA_URL)
    assert (send.status.status_code, process.status.status_code) == (StatusCode.UNSET, StatusCode.UNSET)


def test_span_is_current_in_the_handler_but_not_afterwards(traced: Queue, spans: Spans):
    seen: list[trace.SpanContext] = []
    traced.handler(lambda _: seen.append(trace.get_current_span().get_span_context()))
    for n in range(2):
        traced.send(n)
    Consumer(traced, concurrency=1).drain()
    assert [(each.trace_id, each.span_id) for each in seen] == [ids(span) for span in spans()["process orders"]]
    assert len({each.trace_id for each in seen}) == 2
    assert not trace.get_current_span().get_span_context().is_valid


def test_each_attempt_is_a_span_with_its_error(traced: Queue, spans: Spans):
    def fail(message: Message) -> Any:
        if message.attempt == 1:
            raise ValueError("boom")
        if message.attempt == 2:
            return False
        raise Reject("no more")

    traced.send("x")
    Consumer(traced, fail).run(max_messages=3)
    first, second, third = spans()["process orders"]
    found = [
        (dict(span.attributes or {})["error.type"], span.status.status_code, span.status.description)
        for span in (first, second, third)
    ]
    assert found == [
        ("ValueError", StatusCode.ERROR, "ValueError: boom"),
        ("delayq.errors.ReturnedFalse", StatusCode.ERROR, "ReturnedFalse: the handler returned False"),
        ("delayq.errors.Reject", StatusCode.ERROR, "Reject: no more"),
    ]
    assert [event.name for event in first.events] == ["exception"]
    (send,) = spans()["send orders"]
    assert {span.parent.span_id for span in (first, second, third) if span.parent} == {ids(send)[1]}


def test_mismatching_payload_is_an_error_of_its_delivery(traced: Queue, spans: Spans):
    def typed(order: dict[str, int]) -> None:
        pass

    traced.send({"id": "x"})
    Consumer(traced, typed).drain()
    (process,) = spans()["process orders"]
    assert dict(process.attributes or {})["error.type"] == "delayq.errors.PayloadMismatch"


def test_span_names_the_task_that_ran(traced: Queue, spans: Spans):
    @traced.task
    def welcome(user_id: int) -> None: ...

    welcome.send(42)
    traced.send({"user_id": "x"}, task="welcome")
    Consumer(traced, concurrency=1).drain()
    found = [dict(span.attributes or {}) for span in spans()["process orders"]]
    assert [each["messaging.delayq.message.task"] for each in found] == ["welcome", "welcome"]
    assert [each.get("error.type") for each in found] == [None, "delayq.errors.PayloadMismatch"]
    sends = [dict(span.attributes or {}) for span in spans()["send orders"]]
    assert [each["messaging.delayq.message.task"] for each in sends] == ["welcome", "welcome"]


def test_batch_has_a_span_for_each_message_and_one_for_all(traced: Queue, spans: Spans):
    sents = traced.send_many([Outgoing(1), Outgoing(2, headers={"tenant": "a"}), Outgoing(3, headers=FOREIGN)])
    Consumer(traced, handle, concurrency=1).drain()
    (send,), created, processed = spans()["send orders"], spans()["create orders"], spans()["process orders"]
    assert dict(send.attributes or {})["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in dict(send.attributes or {})
    foreign = (int(TRACE, 16), int(PARENT, 16))
    assert linked(send) == [ids(created[0]), ids(created[1]), foreign]
    assert (send.kind, [span.kind for span in created]) == (SpanKind.CLIENT, [SpanKind.PRODUCER] * 2)
    assert [dict(span.attributes or {})["messaging.message.id"] for span in created] == [sents[0].id, sents[1].id]
    assert {dict(span.attributes or {})["messaging.operation.type"] for span in created} == {"create"}
    assert sorted(link for span in processed for link in linked(span)) == sorted([*map(ids, created), foreign])
    assert all(span.end_time <= (send.start_time or 0) for span in created if span.end_time)


def test_batch_can_do_without_spans_for_its_messages(queue: Queue, provider: TracerProvider, spans: Spans):
    Telemetry(provider, create_spans=False).instrument(queue)
    queue.send_many([Outgoing(1), Outgoing(2)])
    Consumer(queue, handle).drain()
    (send,) = spans()["send orders"]
    assert "create orders" not in spans()
    assert (send.kind, linked(send)) == (SpanKind.PRODUCER, [])
    assert [linked(span) for span in spans()["process orders"]] == [[ids(send)]] * 2


def test_context_in_a_message_is_kept(traced: Queue, spans: Spans):
    traced.send("x", headers={**FOREIGN, "tenant": "a"})
    (message,) = traced.receive()
    assert message.headers == {**FOREIGN, "tenant": "a"}
    (send,) = spans()["send orders"]
    assert linked(send) == [(int(TRACE, 16), int(PARENT, 16))]
    assert send.kind == SpanKind.CLIENT


def test_delivery_can_start_its_own_trace(queue: Queue, provider: TracerProvider, spans: Spans):
    Telemetry(provider, is_child=False).instrument(queue)
    queue.send("x")
    Consumer(queue, handle).drain()
    (send,), (process,) = spans()["send orders"], spans()["process orders"]
    assert process.parent is None
    assert linked(process) == [ids(send)]


def test_delivery_within_another_span_is_its_child(queue: Queue, provider: TracerProvider, spans: Spans):
    telemetry = Telemetry(provider)
    queue.send("x", headers=FOREIGN)
    (message,) = queue.receive()
    token = context.attach(context.set_value("job", 7))
    with provider.get_tracer("job").start_as_current_span("nightly"), telemetry.processing(message):
        assert context.get_value("job") == 7
        message.ack()
    context.detach(token)
    (nightly,), (process,) = spans()["nightly"], spans()["process orders"]
    assert process.parent is not None
    assert process.parent.span_id == ids(nightly)[1]
    assert linked(process) == [(int(TRACE, 16), int(PARENT, 16))]


@pytest.mark.parametrize("is_child", [True, False])
def test_baggage_travels_with_the_message(queue: Queue, provider: TracerProvider, is_child: bool):
    Telemetry(provider, is_child=is_child).instrument(queue)
    token = context.attach(baggage.set_baggage("tenant", "a"))
    queue.send("x")
    context.detach(token)
    seen: list[object] = []
    Consumer(queue, lambda _: seen.append(baggage.get_baggage("tenant"))).drain()
    assert seen == ["a"]
    assert baggage.get_baggage("tenant") is None


@pytest.mark.parametrize("value", [b"00-x", 5, None, "nonsense", ""])
def test_header_that_is_not_a_context_is_ignored(queue: Queue, provider: TracerProvider, spans: Spans, value: Any):
    queue.send("x", headers={"traceparent": value})
    Telemetry(provider).instrument(queue)
    Consumer(queue, handle).drain()
    (process,) = spans()["process orders"]
    assert (process.parent, linked(process), process.status.status_code) == (None, [], StatusCode.UNSET)


def test_failed_send_records_its_error_and_ends_its_spans(traced: Queue, spans: Spans):
    traced.send("x", id="a")
    with pytest.raises(DuplicateMessage):
        traced.send_many([Outgoing("y", id="a", on_conflict="error"), Outgoing("z")])
    _, send = spans()["send orders"]
    assert dict(send.attributes or {})["error.type"] == "delayq.errors.DuplicateMessage"
    assert send.status.status_code == StatusCode.ERROR
    assert len(spans()["create orders"]) == 2


@pytest.mark.parametrize("headers", [5, ["traceparent"], {1: "x"}])
def test_invalid_headers_are_refused_as_without_telemetry(traced: Queue, headers: Any):
    with pytest.raises(InvalidInput, match="header"):
        traced.send("x", headers=headers)
    with pytest.raises(InvalidInput, match="header"):
        traced.send_many([Outgoing("x", headers=headers)])


def test_no_context_is_sent_if_nothing_is_recorded(queue: Queue):
    Telemetry(trace.NoOpTracerProvider()).instrument(queue)
    queue.send("x", headers={"tenant": "a"})
    queue.send_many([Outgoing("y")])
    messages = queue.receive()
    assert sorted(map(str, (message.headers for message in messages))) == ["{'tenant': 'a'}", "{}"]
    assert Consumer(queue, handle).drain() == 0


def test_other_middleware_runs_inside_the_spans(traced: Queue, spans: Spans):
    traced.middleware.before_send(
        lambda outgoing: msgspec.structs.replace(outgoing, headers={**(outgoing.headers or {}), "tenant": "a"})
    )

    @traced.middleware.before_delivery
    def tell(message: Message) -> None:
        trace.get_current_span().set_attribute("tenant", message.headers["tenant"])

    traced.send("x")
    Consumer(traced, handle).drain()
    (process,) = spans()["process orders"]
    assert dict(process.attributes or {})["tenant"] == "a"


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "delayq.telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=re.escape(install("otel"))):
        importlib.import_module("delayq.telemetry")


def test_each_message_of_a_batch_has_its_own_span_under_its_send(
    queue: Queue, provider: TracerProvider, spans: Spans
) -> None:
    Telemetry(provider).instrument(queue)
    current: list[bool] = []

    @queue.batch_handler()
    def handle(_: list[Message]) -> dict[str, Exception]:
        current.append(trace.get_current_span().get_span_context().is_valid)
        return {"b": Reject("no")}

    for name in "abc":
        queue.send("x", id=name)
    assert Consumer(queue, concurrency=1).drain() == 3
    sends = {dict(span.attributes or {})["messaging.message.id"]: span for span in spans()["send orders"]}
    processed = {dict(span.attributes or {})["messaging.message.id"]: span for span in spans()["process orders"]}
    assert set(processed) == {"a", "b", "c"}
    for id, span in processed.items():
        assert span.parent is not None
        assert span.parent.span_id == sends[id].context.span_id
        assert (span.status.status_code is StatusCode.ERROR) == (id == "b")
    assert current == [False]


def test_delivery_of_a_record_is_traced_like_a_message(
    redis_client: redis.Redis, spans: Spans, provider: TracerProvider
):
    middleware = Middleware()
    middleware.around_delivery(Telemetry(provider).processing)
    with Topic("parcels", redis=redis_client) as topic:
        group = topic.group("mail")
        published = topic.publish("x", headers=FOREIGN)
        assert TopicConsumer(group, lambda _: None, middleware=middleware).drain() == 1
    (span,) = spans()["process parcels"]
    attributes = span.attributes or {}
    assert attributes["messaging.message.id"] == published.id
    assert attributes["messaging.delayq.message.delivery_attempt"] == 1
    assert f"{ids(span)[0]:032x}" == TRACE
