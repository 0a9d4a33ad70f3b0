"""Handlers of several messages at once: what they are given, and how their return value is read. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from delayq.errors import InvalidInput
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.middleware import Middleware, Within
from delayq.model.typed_payload import adapt_batch
from delayq.model.units import Seconds, milliseconds

MOST_MESSAGES = 10_000
LONGEST_WAIT_MS = 86_400_000

D = TypeVar("D", bound=Delivery)
Outcomes: TypeAlias = list[tuple[D, oc.Outcome]]
Together: TypeAlias = Callable[[list[Any]], Any]


def payload_of(message: Delivery[Any]) -> Any:
    """Read a payload before its batch is handled, so that one that cannot be read ends only its own message."""
    return message.payload


class BatchHandler(msgspec.Struct, frozen=True):
    """A function that handles several messages at once, as `Queue.batch_handler` registers it.

    Attributes:
        function: called with a list of messages.
        max_messages: the most messages it is given at once.
        max_wait: how many seconds the first message of a batch waits for others.
        read: reads a message's payload as the type that the function is annotated with.
    """

    function: Together
    max_messages: int
    max_wait: float
    read: Callable[[Delivery[Any]], object] = payload_of

    @classmethod
    def of(cls, function: Callable[..., Any], max_messages: int, max_wait: Seconds) -> BatchHandler:
        """Make a handler from a function; raises InvalidInput for a value out of range or an unusable annotation."""
        check_sizes(max_messages, max_wait)
        called, read = adapt_batch(function)
        return cls(called, max_messages, milliseconds(max_wait, "max_wait") / 1000, read or payload_of)

    def __call__(self, messages: list[Any]) -> Any:
        return self.function(messages)

    def around(self, wrap: Callable[[Together], Together]) -> BatchHandler:
        """Return this handler with its function wrapped by `wrap`."""
        return replace(self, function=wrap(self.function))


def check_sizes(max_messages: int, max_wait: Seconds) -> None:
    """Raise InvalidInput for a size or a wait that is out of range."""
    is_number = isinstance(max_messages, int) and not isinstance(max_messages, bool)
    if not is_number or not 1 <= max_messages <= MOST_MESSAGES:
        raise InvalidInput(f"max_messages {max_messages!r} is not a whole number from 1 to {MOST_MESSAGES:,}")
    if milliseconds(max_wait, "max_wait") > LONGEST_WAIT_MS:
        raise InvalidInput(f"max_wait {max_wait!r} is not between 0 and {LONGEST_WAIT_MS // 1000:,} seconds")


class Batching(Generic[D]):
    """How a consumer handles messages together.

    Args:
        handler: handles them.
        middleware: runs around each delivery.
        is_alone: whether a message must be handled by itself, by another function.

    Attributes:
        function: to be called, or awaited, with each list that `steps` yields.
    """

    def __init__(
        self, handler: BatchHandler, middleware: Middleware, is_alone: Callable[[Delivery[Any]], bool]
    ) -> None:
        self.function = handler.function
        self.max_messages = handler.max_messages
        self.max_wait = handler.max_wait
        self.is_alone = is_alone
        self._read = handler.read
        self._within = middleware.within()

    def steps(self, messages: Sequence[D]) -> Generator[list[D], Any, Outcomes[D]]:
        """Handle a batch: yield the messages to call the function with, at most once; return the outcome of each.

        Send it what the function returned, or throw what it raised. A message that middleware or a payload's type keeps
        from the function gets its outcome without it.
        """
        parts = [_Part(message, self._within(message) if self._within else None) for message in messages]
        ready = [part for part in parts if part.begin(self._read)]
        if ready:
            given = [part.message for part in ready]
            try:
                verdicts = verdicts_of((yield given.copy()), given)
            except BaseException as error:  # noqa: BLE001  # SystemExit, too: a handler must not end its worker
                verdicts = [error] * len(given)
            for part, verdict in zip(ready, verdicts, strict=True):
                part.end(verdict)
        return [(part.message, part.outcome) for part in parts]


class _Part(Generic[D]):
    """A message of a batch, on its way through the middleware around its delivery.

    The middleware runs in a context of its own, so what it sets there, such as the current span, stays with this
    message.
    """

    outcome: oc.Outcome

    def __init__(self, message: D, within: Within | None) -> None:
        self.message = message
        self._within = within
        self._context = copy_context() if within is not None else None

    def begin(self, read: Callable[[D], object]) -> bool:
        """Return whether the handler should get the message; if not, the message already has an outcome."""
        try:
            if self._within is not None and self._context is not None:
                self._context.run(next, self._within)
        except StopIteration as swallowed:  # one layer swallowed an error of another
            self.outcome = _outcome(swallowed.value, self.message)
            return False
        except BaseException as error:  # noqa: BLE001  # as raised by the handler
            self.outcome = _outcome(error, self.message)
            return False
        try:
            read(self.message)
        except BaseException as error:  # noqa: BLE001
            self.end(error)
            return False
        return True

    def end(self, verdict: Any) -> None:
        """Set the outcome of the message from the handler's verdict and what middleware makes of it."""
        if self._within is not None and self._context is not None:
            failed = isinstance(verdict, BaseException)
            trace = verdict.__traceback__ if failed else None
            try:
                self._context.run(self._within.throw if failed else self._within.send, verdict)
            except StopIteration as ended:
                ended_with = ended.value
            except BaseException as error:  # noqa: BLE001
                ended_with = error
            if failed:  # all messages may share this error: its traceback must not grow with each of them
                verdict.__traceback__ = trace
            verdict = ended_with
        self.outcome = _outcome(verdict, self.message)


def _outcome(verdict: Any, message: Delivery[Any]) -> oc.Outcome:
    if verdict is None:
        return oc.DONE
    if isinstance(verdict, BaseException):
        return oc.of_error(verdict, message)
    try:
        return oc.of_return(verdict)
    except BaseException as error:  # noqa: BLE001  # `then` may be a generator of the handler's
        return oc.of_error(error, message)


def verdicts_of(returned: object, messages: Sequence[Delivery[Any]]) -> list[Any]:
    """Return the verdict on each message: None, a bool, an Ack or an error.

    Args:
        returned: what the handler returned. None or True acks all, False fails all. A mapping gives verdicts by id or
            message; messages missing from it are acked.

    Raises:
        InvalidInput: the value is or holds something else, or names a message that was not in the batch.
    """
    if returned is None or isinstance(returned, bool):
        return [returned] * len(messages)
    if not isinstance(returned, Mapping):
        raise InvalidInput(
            f"the batch handler returned a value of type {type(returned).__name__}: return None if all succeeded, or "
            "a dict of ids and verdicts"
        )
    known = {message.id for message in messages}
    verdicts: dict[str, Any] = {}
    for key, verdict in returned.items():
        id = key.id if isinstance(key, Delivery) else key
        if id not in known:
            raise InvalidInput(f"the batch handler returned a verdict for {id!r}, which was not in its batch")
        if id in verdicts:
            raise InvalidInput(f"the batch handler returned two verdicts for {id!r}: one by id and one by message")
        if not (verdict is None or isinstance(verdict, bool | oc.Ack | BaseException)):
            raise InvalidInput(
                f"the batch handler returned {verdict!r} for {id!r}: return True, False, None, Ack(…), or "
                "an error such as Reject(…)"
            )
        verdicts[id] = verdict
    return [verdicts.get(message.id) for message in messages]
