"""The outcomes of a delivery: the verdicts of a handler, and the transitions that follow."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from delayq.errors import (
    DelayqError,
    DuplicateMessage,
    InvalidInput,
    InvalidTime,
    NotKept,
    PayloadMismatch,
    Reject,
    RetryAfter,
    UnknownTask,
    UnreadableEnvelope,
    Verdict,
)
from delayq.log import is_interrupt
from delayq.model.units import Seconds, delay_ms

MAX_ERROR_CHARS = 2000
MAX_THEN = 100  # messages that follow from one: the script looks each of them up in all structures

REASON_EXHAUSTED = "retries-exhausted"
REASON_CONSUMER_LOST = "consumer-lost"
REASON_PAYLOAD_MISSING = "payload-missing"
REASON_UNREADABLE = "unreadable-envelope"
REASON_UNFETCHED = "fetch-failed"
REASON_MISMATCH = "payload-mismatch"
REASON_FINAL = "not-retried"
REASON_UNKNOWN_TASK = "unknown-task"
REASON_STOPPED = "stopped"
REASON_NOT_KEPT = "result-not-serializable"
BURIED = "buried"
"""The reason of a message that was buried without one."""

LEASE_LOST = "LeaseLost: the consumer did not settle the message before its lease ended"
"""The last error of a lost delivery, as `unack_to_retry` stores it."""


class Done(msgspec.Struct, frozen=True):
    """→ gone, counted as acked.

    Attributes:
        value: what its function returned, if that is a value: see `returning_value`; else None.
    """

    value: Any = None


class KeptValue(bytes):
    """What a task returned, as JSON, to be kept as its result: a value of `Done`."""


class RemoteTraceback(Exception):
    """Shows the traceback of an error in another process, as text."""

    def __str__(self) -> str:
        return f"in its process\n{self.args[0]}"


class Ack:
    """Returned by a handler to ack its message and send others in the same atomic step.

    Args:
        then: up to 100 messages (`Outgoing`) of the same queue.
    """

    def __init__(self, then: Iterable[Any] = ()) -> None:
        self.then = then


class AckAndSend(msgspec.Struct, eq=False):
    """→ gone, counted as acked; the messages that follow are sent in the same step.

    Attributes:
        then: messages of the same queue.
        encoded: the same messages, encoded at the first try, so that a second try has the same ids.
    """

    then: Iterable[Any]
    encoded: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """→ retry after `delay_ms`, or the queue's backoff when None; → dead when no retry is left.

    Attributes:
        cause: what the handler raised, or None. The backoff gets it, and the log shows its traceback.
        counts: whether it uses up a retry.
    """

    delay_ms: int | None = None
    error: str = ""
    cause: BaseException | None = field(default=None, compare=False)
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Dead:
    """→ dead.

    Attributes:
        counted: whether the delivery was an attempt.
        cause: what the handler raised, or None. The log shows its traceback.
    """

    reason: str
    error: str = ""
    counted: bool = True
    cause: BaseException | None = field(default=None, compare=False)


class Unknown(msgspec.Struct, frozen=True):
    """→ retry, without an attempt, as long as another consumer may know its task; then → dead.

    Attributes:
        task: its name.
        delay_ms: until another consumer may try, as `unknown_tasks.judged` decides.
    """

    task: str
    error: str
    delay_ms: int = 0


class Released(msgspec.Struct, frozen=True):
    """→ ready, without using a retry.

    Attributes:
        behind: whether it goes behind the waiting messages, instead of in the order of its due time.
        begun: whether its handler had begun, so that the attempt number rises.
    """

    behind: bool = False
    begun: bool = False


class Stopped(msgspec.Struct, frozen=True):
    """→ garbage, counted as cancelled: `Queue.cancel` has stopped its handler."""


class Expired(msgspec.Struct, frozen=True):
    """→ garbage, counted as expired."""


Outcome: TypeAlias = Done | AckAndSend | Failed | Dead | Unknown | Released | Stopped | Expired

DONE = Done()
RELEASED = Released()
INTERRUPTED = Released(begun=True)
"""Of a delivery whose handler did not end before the shutdown timeout."""
STOPPED = Stopped()


def mark(message: Any, outcome: Outcome) -> None:
    """Note in a delivery that it was settled with this outcome."""
    message.settled = True
    message.released = isinstance(outcome, Released)
    message.failed = isinstance(outcome, Failed | Dead | Unknown)


def failed(delay: Seconds | None, error: BaseException | str | None) -> Failed:
    """Return the outcome of `Message.nack`."""
    cause = error if isinstance(error, BaseException) else None
    return Failed(None if delay is None else delay_ms(delay), error_text(error), cause)


def dead(reason: str, error: BaseException | str | None) -> Dead:
    """Return the outcome of `Message.reject`."""
    return Dead(error_text(reason) or "rejected", error_text(error))


class IsNamedTask:
    """What `Queue.task` and `Task.options` return: it takes the arguments of its function, and not a message.

    Attributes:
        name: of the task.
    """

    name: str


def check_handler(handler: object, *, is_task: bool = False) -> None:
    """Raise InvalidInput if calling `handler` would not do its work; a task takes other arguments than a message."""
    who = _who(handler, is_task)
    if not callable(handler):
        raise InvalidInput(f"{who} is not callable")
    if is_coroutine_function(handler):
        raise InvalidInput(f"{who} is async: use a plain function, or the Queue of delayq.aio")
    if _is_generator_function(handler):
        raise InvalidInput(f"{who} is a generator function: use a plain function")
    if not is_task:
        check_takes(handler, who, "the message")


def check_async_handler(handler: object, *, is_task: bool = False) -> None:
    """Raise InvalidInput if neither calling nor awaiting `handler` would do its work; as `check_handler`."""
    who = _who(handler, is_task)
    if not callable(handler):
        raise InvalidInput(f"{who} is not callable")
    if _is_generator_function(handler):
        raise InvalidInput(f"{who} is a generator function: use a plain or an async function")
    if not is_task:
        check_takes(handler, who, "the message")


def _who(handler: object, is_task: bool) -> str:
    """Return the beginning of the error messages about a function; raises InvalidInput for a task."""
    who = f"{'task' if is_task else 'handler'} {handler!r}"
    if isinstance(handler, IsNamedTask):
        name = handler.name
        raise InvalidInput(f"{who} is the task {name!r}: use the function itself, {name}.__wrapped__")
    return who


def check_takes(function: Callable[..., Any], who: str, *arguments: str) -> None:
    """Raise InvalidInput if the signature of `function` does not accept these arguments.

    Args:
        who: the beginning of the error message.
        arguments: names for the arguments, in that message.
    """
    # The wrapper is called, and it may take other arguments than the function that it wraps.
    taken = signature(function, follow_wrapped=False)
    try:
        if taken is not None:
            taken.bind(*arguments)
    except TypeError as error:
        wanted = " and ".join(arguments)
        remedy = f"let it take {wanted}, and give any other argument a default"
        raise InvalidInput(f"{who} cannot be called with only {wanted}: {error}; {remedy}") from error


def signature(function: Callable[..., Any], follow_wrapped: bool = True) -> inspect.Signature | None:
    """Return the signature of a function; None if it has none, as many functions written in C."""
    # Since 3.14, annotations are evaluated lazily; names imported only for a type checker stay as they are.
    options: dict[str, Any] = {}
    if sys.version_info >= (3, 14):
        options["annotation_format"] = sys.modules["annotationlib"].Format.FORWARDREF
    try:
        return inspect.signature(function, follow_wrapped=follow_wrapped, **options)
    except (TypeError, ValueError):
        return None


def is_coroutine_function(handler: object) -> bool:
    """Whether calling `handler` returns a coroutine."""
    return any(inspect.iscoroutinefunction(each) for each in called(handler))


def _is_generator_function(handler: object) -> bool:
    return any(inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each) for each in called(handler))


def called(handler: object) -> tuple[object, object]:
    """Return the function that a call runs, and its `__call__` method if it is an object."""
    function = handler.func if isinstance(handler, functools.partial) else handler
    return function, getattr(function, "__call__", None)  # noqa: B004  # to be looked into


def of_return(value: Any) -> Outcome:
    """Return the outcome of a handler that returned `value`: DONE for None, which pools need not ask for."""
    if (error := unusable(value)) is not None:
        return Failed(error=error_text(error))
    done, returned = (value, value.value) if isinstance(value, Done) else (DONE, value)
    if value is False:
        return Failed(error="the handler returned False")
    return AckAndSend(_listed(returned.then)) if isinstance(returned, Ack) else done


def unusable(value: object) -> TypeError | None:
    """Return the error of a handler, or a task (`Done`), that returned work which nobody would do; None for others."""
    who, returned = ("task", value.value) if isinstance(value, Done) else ("handler", value)
    if not would_never_run(returned):
        return None
    return TypeError(f"the {who} returned an object of type {type(returned).__name__}, which would never run")


def would_never_run(returned: object) -> bool:
    """Whether something that a function returned is work that nobody would do."""
    return inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned)


def returning_value(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function whose return value is not read as a verdict: False acks, too, and `Done` carries the value."""
    if is_coroutine_function(function):

        async def handle_async(message: Any) -> Done | None:
            value = await function(message)
            return None if value is None else Done(value)

        return handle_async

    def handle(message: Any) -> Done | None:
        value = function(message)
        return None if value is None else Done(value)

    return handle


def _listed(then: Iterable[Any]) -> Iterable[Any]:
    """List the messages; if they come from a generator of the handler's, its errors count as the handler's."""
    return then if isinstance(then, str | bytes) or not isinstance(then, Iterable) else list(islice(then, MAX_THEN + 1))


def of_error(error: BaseException, message: Any) -> Outcome:
    """Return the outcome of a message, or a record, whose handler raised `error`; never raises.

    An unreadable payload is a verdict on its own message only: a handler may also read those of others.
    """
    try:
        return _of_error(error, message)
    except BaseException:  # noqa: BLE001  # the error's own code must not end a worker
        return Failed(error=error_text(error), cause=error)


def _of_error(error: BaseException, message: Any) -> Outcome:
    if isinstance(error, NotKept):
        return Dead(REASON_NOT_KEPT, error_text(error))
    if isinstance(error, Reject):
        return Dead(error_text(getattr(error, "reason", None)) or "rejected", error_text(error))
    if isinstance(error, UnreadableEnvelope | PayloadMismatch) and message.is_unreadable:
        mismatch = isinstance(error, PayloadMismatch)
        return Dead(REASON_MISMATCH if mismatch else REASON_UNREADABLE, error_text(error))
    if isinstance(error, RetryAfter):
        return _retry_after(error)
    if isinstance(error, UnknownTask):
        return Unknown(error.task, error_text(error))
    cause = None if isinstance(error, Verdict) else error
    if cause is not None and getattr(message, "is_final", False):  # a message of a task
        return Dead(REASON_FINAL, error_text(error), cause=cause)
    return Failed(error=error_text(error), cause=cause)


def clear_frames(outcome: Outcome) -> None:
    """Clear the frames of a handler's error after it was logged.

    They hold the payload. One of them holds the outcome, a cycle that would last until the garbage collector runs.
    """
    if isinstance(outcome, Failed | Dead) and outcome.cause is not None:
        with contextlib.suppress(Exception):  # `__traceback__` may be anything
            traceback.clear_frames(outcome.cause.__traceback__)


def after(outcome: Outcome, error: DelayqError) -> Outcome:
    """Return the outcome to settle after an error: the same one, unless the outcome itself caused the error."""
    if isinstance(error, InvalidInput | DuplicateMessage):
        return Failed(error=error_text(error))
    return outcome


def _retry_after(error: RetryAfter) -> Outcome:
    try:
        return Failed(
            delay_ms(getattr(error, "delay", 0)), error_text(error), counts=bool(getattr(error, "counts", True))
        )
    except InvalidTime as invalid:
        return Failed(error=error_text(invalid))


def cause(reason: str | None, error: str | None) -> str:
    """Return why something died, as one text: the reason and the last error, or only the error if it has both."""
    said = reason is not None and error is not None and reason in error
    return ": ".join(each for each in (None if said else reason, error) if each)


def error_text(error: object) -> str:
    """Return an error's type and message, or a text, cut to 2,000 characters; "" for None."""
    if error is None:
        return ""
    try:
        text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    except BaseException as raised:  # a __str__ that raises must not take the consumer down
        if is_interrupt(raised):
            raise
        text = type(error).__name__
    # A lone surrogate, as in the name of a Latin-1 file, cannot be encoded as UTF-8.
    return text[:MAX_ERROR_CHARS].encode("utf-8", "backslashreplace").decode()[:MAX_ERROR_CHARS]
