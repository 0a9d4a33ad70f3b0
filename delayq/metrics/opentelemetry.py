"""OpenTelemetry metrics: what this process sends and handles, counted and timed.

The names, units and attributes are those of the semantic conventions for messaging, version 1.44.0. It needs
opentelemetry-api (the extra ``otel``); without a configured SDK, nothing is recorded. For what Redis knows
of a queue, over all its senders and consumers, see `delayq.metrics`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import metrics

from delayq import __version__
from delayq.instrumentation import HasMiddleware, destination
from delayq.model.delivery import Delivery
from delayq.model.middleware import Sending
from delayq.model.record import Record
from delayq.telemetry import SCHEMA_URL, TASK_ATTRIBUTE, error_type

SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
"""The bucket bounds that the conventions advise."""

MOST_TASKS = 100
"""The names of tasks of each queue that are attributes; later ones are counted together as `OTHER`."""

OTHER = "other"

LATENESS_SECONDS = [0.001, 0.002, *SECONDS, 60, 600, 3600]


class Instruments:
    """Counts and times the sends and deliveries of the queues that it instruments.

    Args:
        meter_provider: None for the program's own.
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None) -> None:
        self._tasks: dict[str, set[str]] = {}
        meter = metrics.get_meter("delayq", __version__, meter_provider, SCHEMA_URL)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Messages that were given to a send.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Messages that were given to a handler.",
        )
        self._operation = _histogram(
            meter,
            "messaging.client.operation.duration",
            "How long a send took.",
        )
        self._process = _histogram(meter, "messaging.process.duration", "How long a handler ran.")
        self._lateness = _histogram(
            meter, "delayq.lateness", "How long after its due time a message began to be handled.", LATENESS_SECONDS
        )

    def instrument(self, queue: HasMiddleware) -> None:
        """Measure a queue and all that share its middleware; call it before making a `Consumer`."""
        queue.middleware.around_send(self.sending)
        queue.middleware.around_delivery(self.processing)

    @contextmanager
    def sending(self, sending: Sending) -> Iterator[None]:
        """Measure a send until the block ends."""
        with _measured(self._operation, self._sent, len(sending.messages), _attributes("send", sending.queue)):
            yield

    @contextmanager
    def processing(self, message: Delivery[Any] | Record) -> Iterator[None]:
        """Measure the handling of a message or record until the block ends."""
        attributes = _attributes("process", destination(message))
        if isinstance(message, Delivery):
            if (task := message.task) is not None:
                attributes[TASK_ATTRIBUTE] = self._bounded(message.queue, task)
            self._lateness.record(message.lateness, attributes)
        with _measured(self._process, self._consumed, 1, attributes):
            yield

    def _bounded(self, queue: str, task: str) -> str:
        """Return the name of a task, or `OTHER` beyond the first `MOST_TASKS` of its queue."""
        known = self._tasks.setdefault(queue, set())
        if task not in known:
            if len(known) >= MOST_TASKS:
                return OTHER
            known.add(task)
        return task


def _histogram(meter: metrics.Meter, name: str, description: str, ends: Sequence[float] = SECONDS) -> metrics.Histogram:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=list(ends))


@contextmanager
def _measured(
    duration: metrics.Histogram, counter: metrics.Counter, count: int, attributes: dict[str, str]
) -> Iterator[None]:
    """Record how long the block takes, and the number of messages; also if it raises."""
    began = time.perf_counter()
    measured = dict(attributes)
    try:
        yield
    except BaseException as error:
        measured["error.type"] = error_type(error)
        raise
    finally:
        duration.record(time.perf_counter() - began, measured)
        counter.add(count, measured)


def _attributes(operation: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "delayq",
        "messaging.operation.name": operation,
        "messaging.destination.name": queue,
    }
