"""What becomes of a delivery: the verdicts of a handler, and the transitions that follow."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from delayq.errors import InvalidInput, InvalidTime, Reject, RetryAfter, UnreadableEnvelope, Verdict
from delayq.times import delay_ms

MAX_ERROR_CHARS = 2000

REASON_EXHAUSTED = "retries-exhausted"
REASON_CONSUMER_LOST = "consumer-lost"
REASON_PAYLOAD_MISSING = "payload-missing"
REASON_UNREADABLE = "unreadable-envelope"


@dataclass(frozen=True, slots=True)
class Done:
    """→ gone, counted as acked."""


@dataclass(frozen=True, slots=True)
class Failed:
    """→ retry after `delay_ms`, or the queue's backoff when None; → dead when no retry is left."""

    delay_ms: int | None = None
    error: str = ""
    cause: BaseException | None = field(default=None, compare=False)  # whose traceback the log shows


@dataclass(frozen=True, slots=True)
class Dead:
    """→ dead; `counted` says whether the delivery was an attempt."""

    reason: str
    error: str = ""
    counted: bool = True


@dataclass(frozen=True, slots=True)
class HandedBack:
    """→ ready, at no cost.

    Attributes:
        behind: behind what waits already, not in the place that its due time gives it.
    """

    behind: bool = False


@dataclass(frozen=True, slots=True)
class Expired:
    """→ garbage, counted as expired."""


Outcome: TypeAlias = Done | Failed | Dead | HandedBack | Expired

DONE = Done()
HANDED_BACK = HandedBack()


def check_handler(handler: object) -> None:
    """Raise InvalidInput when calling `handler` would not do its work."""
    if not callable(handler):
        raise InvalidInput(f"handler {handler!r} is not callable")
    function = handler.func if isinstance(handler, functools.partial) else handler
    for each in (function, getattr(function, "__call__", None)):  # noqa: B004  # an object's method, to be looked into
        if any(is_lazy(each) for is_lazy in _LAZY):
            raise InvalidInput(f"handler {handler!r} is a coroutine or generator function: give a plain one")


_LAZY = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def of_return(value: Any) -> Outcome:
    """Return the outcome of a handler that returned `value`."""
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        return Failed(error=f"the handler returned a {type(value).__name__}, which nobody runs")
    return Failed(error="the handler returned False") if value is False else DONE


def of_error(error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised `error`."""
    if isinstance(error, Reject):
        return Dead(error_text(getattr(error, "reason", None)) or "rejected", error_text(error))
    if isinstance(error, UnreadableEnvelope):
        return Dead(REASON_UNREADABLE, error_text(error))
    if isinstance(error, RetryAfter):
        return _retry_after(error)
    return Failed(error=error_text(error), cause=None if isinstance(error, Verdict) else error)


def _retry_after(error: RetryAfter) -> Outcome:
    try:
        return Failed(delay_ms(getattr(error, "delay", 0)), error_text(error))
    except InvalidTime as invalid:
        return Failed(error=error_text(invalid))


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
