"""What OpenTelemetry gets about sends and deliveries, read through an SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from delayq import Consumer, Outgoing, Queue, Topic, TopicConsumer, backoff
from delayq.errors import DuplicateMessage
from delayq.metrics.opentelemetry import Instruments
from delayq.model.middleware import Middleware
from delayq.telemetry import SCHEMA_URL, TASK_ATTRIBUTE

Points = Callable[[str], dict[tuple[str, str], Any]]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def instruments(reader: InMemoryMetricReader) -> Iterator[Instruments]:
    provider = MeterProvider([reader])
    yield Instruments(provider)
    provider.shutdown()


@pytest.fixture
def points(reader: InMemoryMetricReader) -> Points:
    """``points(name)``: the values of an instrument, by destination and error."""

    def points(name: str) -> dict[tuple[str, str], Any]:
        data = reader.get_metrics_data()
        assert data is not None
        (scope,) = data.resource_metrics[0].scope_metrics
        assert scope.schema_url == SCHEMA_URL
        (metric,) = [each for each in scope.metrics if each.name == name]
        assert metric.unit == ("{message}" if name.endswith("messages") else "s")
        found = {}
        for each in metric.data.data_points:
            attributes = dict(each.attributes or {})
            found[str(attributes["messaging.destination.name"]), str(attributes.get("error.type", ""))] = each
        return found

    return points


@pytest.fixture
def queue(redis_client: redis.Redis, instruments: Instruments) -> Iterator[Queue]:
    with Queue("orders", redis=redis_client, backoff=backoff.fixed(0)) as queue:
        instruments.instrument(queue)
        yield queue


def test_sent_messages_are_counted_and_sends_timed(queue: Queue, points: Points):
    queue.send("x", id="1")
    queue.send_many([Outgoing("y")] * 3)
    with pytest.raises(DuplicateMessage):
        queue.send("x", id="1", on_conflict="error")
    error = "delayq.errors.DuplicateMessage"
    sent, took = points("messaging.client.sent.messages"), points("messaging.client.operation.duration")
    assert {key: each.value for key, each in sent.items()} == {("orders", ""): 4, ("orders", error): 1}
    assert {key: each.count for key, each in took.items()} == {("orders", ""): 2, ("orders", error): 1}
    assert all(each.attributes["messaging.operation.name"] == "send" for each in took.values())


def test_deliveries_are_counted_and_timed_with_their_lateness(queue: Queue, points: Points):
    queue.send("x")
    tries: list[int] = []

    def handle(_: object) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("no")

    Consumer(queue, handle).run(max_messages=2)
    wanted = {("orders", ""): 1, ("orders", "KeyError"): 1}
    assert {key: each.value for key, each in points("messaging.client.consumed.messages").items()} == wanted
    took = points("messaging.process.duration")
    assert {key: each.count for key, each in took.items()} == wanted
    assert {each.attributes["messaging.system"] for each in took.values()} == {"delayq"}
    assert {key: each.count for key, each in points("delayq.lateness").items()} == {("orders", ""): 2}


def test_deliveries_of_tasks_have_their_names_of_which_at_most_100_are_kept(queue: Queue, reader: InMemoryMetricReader):
    names = [f"task-{number}" for number in range(102)]
    for name in names:
        queue.task(name=name)(nothing)
    queue.send_many([Outgoing({}, task=name) for name in names])
    queue.send("without a task")
    Consumer(queue, print, concurrency=1).drain()
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    (metric,) = [each for each in scope.metrics if each.name == "messaging.client.consumed.messages"]
    counts = {dict(each.attributes or {}).get(TASK_ATTRIBUTE): each.value for each in metric.data.data_points}  # type: ignore[union-attr]
    assert (len(counts), counts["other"], counts[None], counts["task-0"]) == (102, 2, 1, 1)


def test_records_are_counted_under_their_topic(redis_client: redis.Redis, instruments: Instruments, points: Points):
    middleware = Middleware()
    middleware.around_delivery(instruments.processing)
    with Topic("events", redis=redis_client) as topic:
        group = topic.group("log", start="0")
        topic.publish("x")
        TopicConsumer(group, lambda _: None, middleware=middleware).drain()
    assert points("messaging.client.consumed.messages")["events", ""].value == 1


def nothing() -> None:
    """Do nothing, as a task."""
