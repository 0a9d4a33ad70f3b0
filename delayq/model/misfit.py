"""Messages that the code at hand would fail before it runs, in groups by task and field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from delayq.errors import HandlerMissing, PayloadMismatch
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.text import printable_id
from delayq.model.typed_payload import ModelError

MOST_GROUPS = 1000
"""More groups than this are counted as one: another program may have chosen the names of tasks."""

MOST_SAMPLES = 3
"""Ids that each group keeps."""

OTHERS = "(others)"

HANDLER_MISSING = "handler-missing"
FAILED = "failed"

_PLACE = re.compile(r"(.*?)(?: - at (?:`key` in )?`(\$[^`]*)`)?", re.DOTALL)
_FIELD = re.compile(r"(Object (?:missing required|contains unknown) field) `(.*)`", re.DOTALL)
_POSITION = re.compile(r"\[\d+\]")
_VALUE = re.compile(r"(Invalid (?:enum )?value) .*", re.DOTALL)

Where = Literal["waiting", "dead"]


class Misfit(msgspec.Struct, kw_only=True):
    """Messages that would fail for the same cause.

    Attributes:
        where: whether they wait, or are dead letters, which would fail again if they were requeued.
        reason: "unknown-task", "payload-mismatch" or "unreadable-envelope", as of dead letters; "handler-missing" for
            occurrences of a schedule without its function, and messages without a task if there are only tasks;
            "failed" if a type's own check raises another error, for which the message is retried.
        task: the task, or the schedule; None for the queue's handler.
        field: where in the payload the first wrong value is, such as ``$.lines[...].price``; None for another reason.
        problem: what is wrong with it, without the value; for "failed", the error's type; None for another reason.
        count: how many there are.
        samples: the ids of the first ones, at most 3.
    """

    where: Where
    reason: str
    task: str | None
    field: str | None
    problem: str | None
    count: int = 0
    samples: list[str] = []


class Misfits:
    """Counts misfits in bounded memory."""

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], Misfit] = {}

    @property
    def found(self) -> Sequence[Misfit]:
        """All groups, the largest first."""
        return sorted(self._groups.values(), key=lambda each: -each.count)

    @property
    def count(self) -> int:
        """How many messages they are."""
        return sum(each.count for each in self._groups.values())

    def add(self, where: Where, message_id: str, task: str | None, reason: str, error: Exception) -> None:
        """Count a message that would fail with an error."""
        field, problem = wrong(error) if reason == oc.REASON_MISMATCH else (None, None)
        if reason == FAILED:
            problem = type(error).__name__
        key = where, reason, task, field, problem
        if key not in self._groups and len(self._groups) >= MOST_GROUPS:
            task, field, problem = OTHERS, None, None
            key = where, reason, task, field, problem
        if key not in self._groups:
            self._groups[key] = Misfit(where=where, reason=reason, task=task, field=field, problem=problem)
        group = self._groups[key]
        group.count += 1
        if len(group.samples) < MOST_SAMPLES:
            group.samples.append(printable_id(message_id))


def reason_of(error: Exception, message: Delivery[object]) -> str:
    """Return the reason of the dead letter that a delivery with this error becomes, now or after its retries."""
    found = oc.of_error(error, message)
    if isinstance(found, oc.Unknown):
        return oc.REASON_UNKNOWN_TASK
    if isinstance(found, oc.Dead):
        return found.reason
    return HANDLER_MISSING if isinstance(error, HandlerMissing) else FAILED


def wrong(error: Exception) -> tuple[str | None, str]:
    """Return where the first wrong value of a payload is, and what is wrong with it, without any value.

    The text of an error may contain a value if it comes from the program: from a `__post_init__` or a validator.
    """
    cause: BaseException | None = error
    while isinstance(cause, PayloadMismatch):
        cause = cause.__cause__
    if not isinstance(cause, msgspec.ValidationError):
        return None, str(error)  # one of delayq's own sentences
    match = _PLACE.fullmatch(str(cause))
    assert match is not None
    text, place = match[1], _POSITION.sub("[...]", match[2] or "$")
    raised = cause.__cause__
    if isinstance(raised, ModelError):
        steps = (_step(name if name in raised.declared else 0) for name in raised.path)
        return place + "".join(steps), raised.kind
    if raised is not None:
        return place, f"refused by the type's own check ({type(raised).__name__})"
    if field := _FIELD.fullmatch(text):
        return place + _step(field[2]), field[1]
    return place, _VALUE.sub(r"\1", text)


def _step(name: str | int) -> str:
    """Return a step to a field; a position, or what can be no field of a class, is data."""
    return f".{name}" if isinstance(name, str) and name.isidentifier() else "[...]"
