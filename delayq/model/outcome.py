"""What becomes of a delivery: the verdicts of a handler, and the transitions that follow."""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from delayq.errors import (
    DelayqError,
    DuplicateMessage,
    InvalidInput,
    InvalidTime,
    PayloadMismatch,
    Reject,
    RetryAfter,
    UnreadableEnvelope,
    Verdict,
)
from delayq.model.units import Seconds, delay_ms

MAX_ERROR_CHARS = 2000
MAX_THEN = 100  # messages that follow from one: a call looks each of them up in all structures

REASON_EXHAUSTED = "retries-exhausted"
REASON_CONSUMER_LOST = "consumer-lost"
REASON_PAYLOAD_MISSING = "payload-missing"
REASON_UNREADABLE = "unreadable-envelope"
REASON_MISMATCH = "payload-mismatch"

LEASE_LOST = "LeaseLost: the consumer did not settle the message before its lease ended"
"""The last error of what was lost, as `unack_to_retry` keeps it."""


@dataclass(frozen=True, slots=True)
class Done:
    """→ gone, counted as acked."""


class Ack:
    """What a handler returns when its message is done and others follow from it: all in one step, or nothing of it.

    Args:
        then: up to 100 messages (`Outgoing`) of the same queue.
    """

    def __init__(self, then: Iterable[Any] = ()) -> None:
        self.then = then


@dataclass(eq=False, slots=True)
class AckAndSend:
    """→ gone, counted as acked; and what follows from it is sent in the same step.

    Attributes:
        then: messages of the same queue.
        encoded: the same, ready to go out, once that was tried: tried again, they have the same ids.
    """

    then: Iterable[Any]
    encoded: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """→ retry after `delay_ms`, or the queue's backoff when None; → dead when no retry is left.

    Attributes:
        cause: what the handler has raised, which the backoff sees, and whose traceback the log shows; None for none.
        counts: whether it uses up a retry.
    """

    delay_ms: int | None = None
    error: str = ""
    cause: BaseException | None = field(default=None, compare=False)
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Dead:
    """→ dead; `counted` says whether the delivery was an attempt."""

    reason: str
    error: str = ""
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Released:
    """→ ready, at no cost.

    Attributes:
        behind: behind what waits already, not in the place that its due time gives it.
        begun: its handler had begun: the attempt number rises.
    """

    behind: bool = False
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Expired:
    """→ garbage, counted as expired."""


Outcome: TypeAlias = Done | AckAndSend | Failed | Dead | Released | Expired

DONE = Done()
RELEASED = Released()
INTERRUPTED = Released(begun=True)
"""Of a delivery whose handler did not end before the shutdown timeout."""


def failed(delay: Seconds | None, error: BaseException | str | None) -> Failed:
    """Return what `Message.nack` asks for."""
    cause = error if isinstance(error, BaseException) else None
    return Failed(None if delay is None else delay_ms(delay), error_text(error), cause)


def dead(reason: str, error: BaseException | str | None) -> Dead:
    """Return what `Message.reject` asks for."""
    return Dead(error_text(reason) or "rejected", error_text(error))


def check_handler(handler: object) -> None:
    """Raise InvalidInput when calling `handler` would not do its work."""
    if not callable(handler):
        raise InvalidInput(f"handler {handler!r} is not callable")
    if is_coroutine_function(handler):
        raise InvalidInput(f"handler {handler!r} is async: give a plain function, or use the Queue of delayq.aio")
    if _is_generator_function(handler):
        raise InvalidInput(f"handler {handler!r} is a generator function: give a plain one")
    check_takes(handler, f"handler {handler!r}", "the message")


def check_async_handler(handler: object) -> None:
    """Raise InvalidInput when neither calling nor awaiting `handler` would do its work."""
    if not callable(handler):
        raise InvalidInput(f"handler {handler!r} is not callable")
    if _is_generator_function(handler):
        raise InvalidInput(f"handler {handler!r} is a generator function: give an async or a plain one")
    check_takes(handler, f"handler {handler!r}", "the message")


def check_takes(function: Callable[..., Any], who: str, *arguments: str) -> None:
    """Raise InvalidInput when `function` cannot be called with so many arguments, as far as its signature tells.

    Args:
        who: begins the sentence that refuses it.
        arguments: what each of them is.
    """
    # What a decorator has wrapped may take others than its wrapper, which is what is called.
    taken = signature(function, follow_wrapped=False)
    try:
        if taken is not None:
            taken.bind(*arguments)
    except TypeError as error:
        wanted = " and ".join(arguments)
        remedy = f"let it take {wanted}, and nothing else without a default"
        raise InvalidInput(f"{who} cannot be called with {wanted} alone: {error}; {remedy}") from error


def signature(function: Callable[..., Any], follow_wrapped: bool = True) -> inspect.Signature | None:
    """Return the signature of a function; None where it has none, as many that are written in C."""
    # From 3.14 on, annotations are computed when asked for; a name that is only imported for a type checker is kept.
    options: dict[str, Any] = {}
    if sys.version_info >= (3, 14):
        options["annotation_format"] = sys.modules["annotationlib"].Format.FORWARDREF
    try:
        return inspect.signature(function, follow_wrapped=follow_wrapped, **options)
    except (TypeError, ValueError):
        return None


def is_coroutine_function(handler: object) -> bool:
    """Whether calling `handler` makes a coroutine."""
    return any(inspect.iscoroutinefunction(each) for each in called(handler))


def _is_generator_function(handler: object) -> bool:
    return any(inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each) for each in called(handler))


def called(handler: object) -> tuple[object, object]:
    """Return the function that a call runs, and the method, should it be an object."""
    function = handler.func if isinstance(handler, functools.partial) else handler
    return function, getattr(function, "__call__", None)  # noqa: B004  # to be looked into


def of_return(value: Any) -> Outcome:
    """Return the outcome of a handler that returned `value`."""
    if value is None:  # nearly always: the checks below take a third of a microsecond
        return DONE
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        return Failed(error=f"the handler returned a {type(value).__name__}, which nobody runs")
    if value is False:
        return Failed(error="the handler returned False")
    return AckAndSend(_listed(value.then)) if isinstance(value, Ack) else DONE


def _listed(then: Iterable[Any]) -> Iterable[Any]:
    """Run what may be a generator of the handler's, whose errors are the handler's."""
    return then if isinstance(then, str | bytes) or not isinstance(then, Iterable) else list(islice(then, MAX_THEN + 1))


def of_error(error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised `error`."""
    if isinstance(error, Reject):
        return Dead(error_text(getattr(error, "reason", None)) or "rejected", error_text(error))
    if isinstance(error, UnreadableEnvelope):
        return Dead(REASON_UNREADABLE, error_text(error))
    if isinstance(error, PayloadMismatch):
        return Dead(REASON_MISMATCH, error_text(error))
    if isinstance(error, RetryAfter):
        return _retry_after(error)
    return Failed(error=error_text(error), cause=None if isinstance(error, Verdict) else error)


def clear_frames(outcome: Outcome) -> None:
    """Clear the frames of a handler's error, once it was logged.

    They hold the payload and, as one of them holds the outcome, would keep it until the garbage collector runs.
    """
    if isinstance(outcome, Failed) and outcome.cause is not None:
        traceback.clear_frames(outcome.cause.__traceback__)


def after(outcome: Outcome, error: DelayqError) -> Outcome:
    """Return what is to be settled instead of an outcome that met an error: the same, unless that was its own fault."""
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
    """Return why something died, in one text: its reason, unless its last error says that, too, and the error."""
    said = reason is not None and error is not None and reason in error
    return ": ".join(each for each in (None if said else reason, error) if each)


def error_text(error: object) -> str:
    """Return an error's type and message, or a text, at most 2,000 characters of it; '' for None."""
    if error is None:
        return ""
    try:
        text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    except Exception:  # noqa: BLE001  # a __str__ that raises must not take the consumer down
        text = type(error).__name__
    # A lone surrogate, as in the name of a Latin-1 file, has no encoding that Redis could store.
    return text[:MAX_ERROR_CHARS].encode("utf-8", "backslashreplace").decode()[:MAX_ERROR_CHARS]
