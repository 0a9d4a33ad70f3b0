"""What can be known of a message without taking it."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import msgspec

from delayq.model.envelope import Envelope, open_body
from delayq.model.placement import State


class MessageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a message, at one instant.

    Attributes:
        state: where it is in Redis; "deferred" when it is beyond the queue's horizon, in its lake.
        due_at: when it is or was due for its next delivery; None in unack, dead and garbage.
        lease_until: when the running delivery's lease ends, or None.
        died_at: when it died, or None.
        attempts: deliveries that counted, the running one included.
        retries_used: of those that have ended, the ones since the last requeue that used up a retry.
        error: the last one, or None.
        reason: why it died, or None.
        cancelled: True for a message in flight that will not be retried.
        timeout: seconds that a run of its handler may take; None where its sender has not said so, too.
        created_at, expires_at, max_retries, headers, body: None where the payload is gone or unreadable.
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
    created_at: dt.datetime | None = None
    expires_at: dt.datetime | None = None
    max_retries: int | None = None
    timeout: float | None = None
    headers: dict[str, Any] | None = None
    envelope: Envelope | None = None

    @property
    def body(self) -> bytes | None:
        """The payload as bytes, or None where it is gone."""
        return self.envelope.body if self.envelope else None

    @property
    def payload(self) -> Any:
        """The payload as it was sent, or None where it is gone."""
        return open_body(self.envelope) if self.envelope else None
