"""A consumer in the test's own thread or task: a program of calls, which either face runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from delayq.errors import DuplicateMessage, InvalidInput, StaleReceipt
from delayq.log import log_of
from delayq.model import outcome as oc
from delayq.model.batch_handler import Batching, Outcomes
from delayq.model.delivery import running
from delayq.model.message_info import death_of
from delayq.model.validation import MAX_RECEIVED, is_whole
from delayq.operations import idle, schedules
from delayq.runtime.hooks import tell_dead
from delayq.testing.face import Handler

T = TypeVar("T")
Calls: TypeAlias = Generator[Callable[[], Any], Any, T]  # yields calls, and is sent their results


class MovableClock(Protocol):
    """A clock that the run can move."""

    ms: float

    def move(self, ms: float) -> None:
        """Set the time to `ms`."""


class Served:
    """A queue, and its handlers as a consumer calls them.

    Args:
        consumer: of the queue.
        called: turns a handler into the function that is called in its place.
    """

    def __init__(self, consumer: Any, called: Callable[[Handler], Handler]) -> None:
        self.queue = consumer.queue
        self.batching: Batching[Any] | None = consumer.batching
        self.handler = called(consumer.handler)
        self.batch_handler = called(self.batching.function) if self.batching else self.handler

    def is_alone(self, message: Any) -> bool:
        """Whether a message is handled by itself."""
        return self.batching is None or self.batching.is_alone(message)


class Drain:
    """Handles the messages of queues as they fall due.

    Args:
        clock: moved from one due time to the next.
        served: queues, which take turns.
        limit: maximum messages to handle.

    Attributes:
        handled: the messages, in order.
    """

    def __init__(self, clock: MovableClock, served: Sequence[Served], limit: int) -> None:
        if not is_whole(limit) or limit < 1:
            raise InvalidInput(f"limit {limit!r} is not a number of messages, 1 or more")
        self.handled: list[Any] = []
        self._clock = clock
        self._served = served
        self._limit = limit
        self._errors: dict[tuple[str, str], tuple[BaseException, Any]] = {}  # of messages that failed last time

    def until(self, end: float) -> Calls[None]:
        """Handle everything that falls due until a time, in milliseconds."""
        queues = [each.queue for each in self._served]
        for queue in queues:
            yield partial(queue.execute, schedules.add_all, queue.handlers.prepared)  # as a consumer does
        while True:
            yield from self._drain()
            if self._clock.ms >= end:
                return
            moments = [end]
            for queue in queues:
                event = yield partial(queue.execute, idle.next_event, "delayq.testing")
                moments += [] if event is None else [event]
            self._clock.move(min(moments))

    def _drain(self) -> Calls[None]:
        busy = list(self._served)
        while busy:
            busy = []
            for each in self._served:  # handlers send to any queue
                if (yield from self._takes_some(each)):
                    busy.append(each)

    def raise_errors(self) -> None:
        """Raise the last errors of handlers, for messages that did not succeed afterwards."""
        errors: list[BaseException] = []
        batched = {each.queue.name for each in self._served if each.batching is not None}
        for error, message in self._errors.values():
            then = "it is dead" if message.is_last or message.death is not None else "it waits for its next attempt"
            attempt = f"attempt {message.attempt} at {message.id}"
            error.add_note(f"raised by the handler of {message.queue} in {attempt}: {then}")
            if message.queue not in batched or not any(error is other for other in errors):
                errors.append(error)  # the error of a whole batch only once
        if len(errors) > 1:
            raise BaseExceptionGroup(f"{len(errors)} messages failed", errors)
        for error in errors:
            raise error

    def _takes_some(self, served: Served) -> Calls[bool]:
        """Handle a message of a queue, or a batch of them; return whether anything was due."""
        queue = served.queue
        left = self._limit - len(self.handled)
        messages = yield from _received(served, max(1, left))
        if messages and left <= 0:
            yield messages[0].release
            raise AssertionError(
                f"{self._limit} messages were handled, and {messages[0].id} of {queue.name} is also due: does a "
                "handler keep sending messages? If not, give a higher limit"
            )
        self.handled += messages
        for message in filter(served.is_alone, messages):
            yield from self._settle(queue, message, (yield from _handled(served, message)))
        together = [message for message in messages if not served.is_alone(message)]
        for message, outcome in (yield from _handled_together(served, together)):
            yield from self._settle(queue, message, outcome)
        return bool(messages)

    def _settle(self, queue: Any, message: Any, outcome: oc.Outcome) -> Calls[None]:
        if not message.settled:
            outcome = yield from _settled(queue, message, outcome)
        if (info := death_of(message)) is not None:
            yield from tell_dead(queue.middleware.deaths, [info])
        self._errors.pop((queue.name, message.id), None)
        cause = outcome.cause if isinstance(outcome, oc.Failed | oc.Dead) else None
        if cause is not None and _ends_the_test(cause):
            raise cause
        if message.settled and not message.failed and isinstance(outcome, oc.Failed | oc.Dead):  # it has acked itself
            log_of(message).warning("handler failed after settling", error=outcome.error)
        elif cause is not None:
            self._errors[queue.name, message.id] = cause, message


def _received(served: Served, limit: int) -> Calls[list[Any]]:
    """Take the messages that the handler is given in one call."""
    if served.batching is None:
        return (yield partial(served.queue.receive, 1))  # type: ignore[no-any-return]  # of either face
    most = min(served.batching.max_messages, limit)
    messages: list[Any] = []
    while len(messages) < most and (
        more := (yield partial(served.queue.receive, min(MAX_RECEIVED, most - len(messages))))
    ):
        messages += more
    return messages


def _handled(served: Served, message: Any) -> Calls[oc.Outcome]:
    """Run the handler on a message, as a worker does."""
    before = running.get()
    try:
        return oc.of_return((yield partial(served.handler, message)))
    except BaseException as error:  # noqa: BLE001  # SystemExit, too, as in a worker
        return oc.of_error(error, message)
    finally:
        running.set(before)


def _handled_together(served: Served, messages: Sequence[Any]) -> Calls[Outcomes[Any]]:
    """Run the handler on a batch, as a worker does."""
    if served.batching is None or not messages:
        return []
    steps = served.batching.steps(messages)
    try:
        given = next(steps)
        try:
            returned = yield partial(served.batch_handler, given)
        except BaseException as error:  # noqa: BLE001  # as above
            steps.throw(error)
        else:
            steps.send(returned)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the generator returns
    raise AssertionError("a batch is handled once")


def _settled(queue: Any, message: Any, outcome: oc.Outcome) -> Calls[oc.Outcome]:
    """Settle a delivery, and return how: as failed, if its follow-up messages cannot be sent."""
    try:
        yield partial(queue.settle, message, outcome)
    except StaleReceipt:  # the handler has moved the clock past its own lease
        pass
    except (InvalidInput, DuplicateMessage) as error:
        outcome = oc.Failed(error=oc.error_text(error), cause=error)
        yield partial(queue.settle, message, outcome)
    return outcome


def _ends_the_test(error: BaseException) -> bool:
    """Whether a handler's exception is an interrupt, one of pytest's own, or a cancel of the test."""
    with contextlib.suppress(RuntimeError):  # no event loop runs
        if isinstance(error, asyncio.CancelledError):  # or the handler's own
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
    return not isinstance(error, Exception | SystemExit)
