"""A consumer at work in the test's own thread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from delayq.consumer import Consumer
from delayq.errors import DuplicateMessage, InvalidInput, StaleReceipt
from delayq.log import log_of
from delayq.model import outcome as oc
from delayq.model.interval import FALLBACK_MS
from delayq.model.message import Message
from delayq.model.queue_stats import Counts
from delayq.operations import schedules
from delayq.operations.queue_context import QueueContext, is_whole
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import MAX_IDS
from delayq.queue import Queue
from delayq.runtime.batch_pool import handled

WAITING = ("pending", "ready", "retry", "unack")  # the states of which something may become a delivery


class MovableClock(Protocol):
    """What the run moves."""

    ms: float

    def move(self, ms: float) -> None:
        """Let it be `ms`."""


class Drain:
    """Handles the messages of queues as they fall due.

    Args:
        clock: is moved from one due time to the next.
        consumers: whose queues take turns, and whose handlers are called as they would call them.
        limit: the most messages to handle.

    Attributes:
        handled: the messages, in their order.
    """

    def __init__(self, clock: MovableClock, consumers: Sequence[Consumer], limit: int) -> None:
        if not is_whole(limit) or limit < 1:
            raise InvalidInput(f"limit {limit!r} is not a number of messages, 1 or more")
        self.handled: list[Message] = []
        self._clock = clock
        self._consumers = consumers
        self._limit = limit
        self._errors: dict[tuple[str, str], tuple[BaseException, Message]] = {}  # of messages that failed last time

    def until(self, end: float) -> None:
        """Handle all that is due until a time, in milliseconds."""
        for queue in (consumer.queue for consumer in self._consumers):
            queue.execute(schedules.add_all, queue.handlers.crons.prepared)  # as a consumer does
        while True:
            self._drain()
            if self._clock.ms >= end:
                return
            queues = [consumer.queue for consumer in self._consumers]
            events = [queue.execute(_next_event) for queue in queues]
            self._clock.move(min([end, *(at for at in events if at is not None)]))

    def _drain(self) -> None:
        busy = list(self._consumers)
        while busy:
            busy = [each for each in self._consumers if self._takes_some(each)]  # handlers send to any queue

    def raise_errors(self) -> None:
        """Raise what handlers have raised last, for messages that were not handled well afterwards."""
        errors: list[BaseException] = []
        batched = {consumer.queue.name for consumer in self._consumers if consumer.batching is not None}
        for error, message in self._errors.values():
            then = "it is dead" if message.is_last else "it waits for its next attempt"
            attempt = f"attempt {message.attempt} at {message.id}"
            error.add_note(f"raised by the handler of {message.queue} in {attempt}: {then}")
            if message.queue not in batched or not any(error is other for other in errors):
                errors.append(error)  # that of a whole batch once
        if len(errors) > 1:
            raise BaseExceptionGroup(f"{len(errors)} messages have failed", errors)
        for error in errors:
            raise error

    def _takes_some(self, consumer: Consumer) -> bool:
        """Handle a message of a queue, or a batch of them; return whether anything was due."""
        left = self._limit - len(self.handled)
        messages = _received(consumer, max(1, left))
        if messages and left <= 0:
            messages[0].release()
            raise AssertionError(
                f"{self._limit} messages were handled, and {messages[0].id} of {consumer.queue.name} is due, too: does "
                "a handler send without an end? Else give a higher limit"
            )
        self.handled += messages
        for message, outcome in _outcomes(consumer, messages):
            self._note(consumer.queue, message, outcome)
        return bool(messages)

    def _note(self, queue: Queue, message: Message, outcome: oc.Outcome) -> None:
        if not message.settled:
            outcome = _settle(queue, message, outcome)
        self._errors.pop((queue.name, message.id), None)
        cause = outcome.cause if isinstance(outcome, oc.Failed) else None
        if cause is not None and not isinstance(cause, Exception | SystemExit):
            raise cause  # an interrupt, or pytest's own: the test ends
        if message.settled and not message.failed and isinstance(outcome, oc.Failed | oc.Dead):  # it has acked itself
            log_of(message).warning("handler failed after it had settled its message", error=outcome.error)
        elif cause is not None:
            self._errors[queue.name, message.id] = cause, message


def _received(consumer: Consumer, limit: int) -> list[Message]:
    """Take what the consumer's handler is given at once."""
    if consumer.batching is None:
        return consumer.queue.receive(1)
    most = min(consumer.batching.max_messages, limit)
    messages: list[Message] = []
    while len(messages) < most and (more := consumer.queue.receive(min(MAX_IDS, most - len(messages)))):
        messages += more
    return messages


def _outcomes(consumer: Consumer, messages: list[Message]) -> Iterator[tuple[Message, oc.Outcome]]:
    """Run the handlers on messages, as a worker does."""
    together: list[Message] = []
    for message in messages:
        if consumer.batching is not None and not consumer.batching.is_alone(message):
            together.append(message)
            continue
        try:
            outcome = oc.of_return(consumer.handler(message))
        except BaseException as error:  # noqa: BLE001  # SystemExit, too, as in a worker
            outcome = oc.of_error(error)
        yield message, outcome
    if consumer.batching is not None and together:
        yield from handled(consumer.batching, together)


def _settle(queue: Queue, message: Message, outcome: oc.Outcome) -> oc.Outcome:
    """Settle a delivery, and return how: as failed, when what was to follow from it cannot be sent."""
    try:
        queue.settle(message, outcome)
    except StaleReceipt:  # the handler has moved the clock past its own lease
        pass
    except (InvalidInput, DuplicateMessage) as error:
        outcome = oc.Failed(error=oc.error_text(error), cause=error)
        queue.settle(message, outcome)
    return outcome


def _next_event(context: QueueContext) -> Operation[float | None]:
    """Return when the next message of a queue falls due, or a lease ends, in milliseconds; None when nothing waits."""
    shards = yield from context.opened()
    counts: list[Counts] = [unwrap(result) for result in (yield [scripts.stats() for scripts in shards])]
    if any(each.paused_ms is not None for each in counts):
        return None
    now = counts[0].now_ms
    heads = [math.ceil(head) for each in counts for state, head in each.heads_ms.items() if state in WAITING]
    if not any(head <= now for head in heads):
        return min(heads, default=None)
    # What is due already is held back: to be looked at again when a limit lets it go, or as often as a consumer does.
    rested = yield [scripts.poll_idle("delayq.testing", FALLBACK_MS) for scripts in shards]
    return now + (min(math.ceil(unwrap(each).micros / 1000) for each in rested) or FALLBACK_MS)
