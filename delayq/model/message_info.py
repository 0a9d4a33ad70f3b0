"""What can be read about a message without taking it."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import msgspec

from delayq.model.delivery import Deliveries, Delivery
from delayq.model.envelope import Envelope, group_of, open_body
from delayq.model.handler_progress import HandlerProgress
from delayq.model.occurrence import MayOccur, Occurrence, occurrence
from delayq.model.placement import State
from delayq.model.result import DEAD, TaskError, TaskResult, called
from delayq.model.task_name import task_of
from delayq.model.units import from_ms


class MessageInfo(MayOccur, msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is at one instant.

    Attributes:
        state: where it is in Redis; "deferred" if it is beyond the queue's horizon, in its lake.
        due_at: when it is or was due for its next delivery; None in unack, dead and garbage.
        lease_until: when the running delivery's lease ends, or None.
        died_at: when it died, or None.
        attempts: deliveries that counted, including the running one.
        retries_used: how many of `max_retries` are used since the last requeue.
        error: the last error, or None.
        reason: why it died, or None.
        cancelled: True for a message in flight that will not be retried.
        timeout: seconds that a run of its handler may take; None also if its sender did not set it.
        headers: what the sender added.
        progress: what the handler of its running delivery has reported; None if it has not.
        member_of: the group that it belongs to as a member; None once it has ended, and for any other message.
        task: the name of the task that it is for; None for any other message.
        group: the group that it waits, or waited, for; None for any other message.
        created_at, expires_at, max_retries, headers, body: None if the payload is gone or unreadable.
    """

    id: str
    queue: str
    state: State | Literal["deferred"]
    due_at: dt.datetime | None = None
    lease_until: dt.datetime | None = None
    died_at: dt.datetime | None = None
    attempts: int = 0
    retries_used: int = 0
    error: str | None = None
    reason: str | None = None
    cancelled: bool = False
    member_of: str | None = None
    progress: HandlerProgress | None = None
    created_at: dt.datetime | None = None
    expires_at: dt.datetime | None = None
    max_retries: int | None = None
    timeout: float | None = None
    headers: dict[str, Any] | None = None
    envelope: Envelope | None = None

    @property
    def body(self) -> bytes | None:
        """The payload as bytes, or None if it is gone."""
        return self.envelope.body if self.envelope else None

    @property
    def occurrence(self) -> Occurrence | None:
        return occurrence(self.id, self.envelope.headers) if self.envelope else None

    @property
    def task(self) -> str | None:
        return task_of(self.envelope.headers) if self.envelope else None

    @property
    def group(self) -> str | None:
        return group_of(self.envelope.headers) if self.envelope else None

    @property
    def payload(self) -> Any:
        """The payload as it was sent, or None if it is gone."""
        return open_body(self.envelope) if self.envelope else None


def content(created_ms: int, envelope: Envelope) -> dict[str, Any]:
    """Return the fields that come from an envelope."""
    return {
        "created_at": from_ms(created_ms),
        "expires_at": None if envelope.expires_ms is None else from_ms(created_ms + envelope.expires_ms),
        "max_retries": envelope.max_retries,
        "timeout": envelope.timeout,
        "headers": envelope.sent_headers,
        "envelope": envelope,
    }


def dead_letter(
    queue: str, id: str, before: Deliveries, died_ms: int, reason: str, error: str, counted: bool, **known: Any
) -> MessageInfo:
    """Return the info of a message that has just become a dead letter.

    Args:
        before: its deliveries before the last one.
        counted: whether the last one counts as an attempt.
        known: the fields of its envelope.
    """
    return MessageInfo(
        id=id,
        queue=queue,
        state="dead",
        died_at=from_ms(died_ms),
        attempts=before.past + counted,
        retries_used=before._replace(past=before.past + counted).retries_of(known.get("max_retries")),
        error=error or None,
        reason=reason,
        **known,
    )


def death_of(message: Delivery[Any]) -> MessageInfo | None:
    """Return the info of a message that a delivery made a dead letter; None if it did not."""
    if message.death is None:
        return None
    at_ms, reason, error, counted = message.death
    known = content(*message.stored)
    return dead_letter(message.queue, message.id, message.before, at_ms, reason, error, counted, **known)


def result_of(info: MessageInfo) -> TaskResult:
    """Return the result of a task whose message died without a record, as nobody ran it."""
    return TaskResult(
        id=info.id,
        queue=info.queue,
        status=DEAD,
        error=TaskError.of(info.error or "", info.reason or ""),
        created_at=info.created_at,
        finished_at=info.died_at,
        attempts=info.attempts,
        **({} if info.envelope is None else called(info.envelope)),
    )
