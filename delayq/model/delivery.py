"""What a producer sends, what it gets back, and a delivery as a consumer receives it."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple

import msgspec

from delayq.errors import InvalidInput, PayloadMismatch, UnreadableEnvelope
from delayq.model.envelope import Envelope, Headers, group_of, open_body
from delayq.model.occurrence import MayOccur, Occurrence, occurrence
from delayq.model.other_libraries import SEND, unknown_argument
from delayq.model.result import Retention, retention_of
from delayq.model.task_name import task_of
from delayq.model.units import MAX_COUNT, Seconds, from_ms

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)  # a Message is a Message[Any]
else:
    from typing import TypeVar

    P = TypeVar("P")

OnConflict = Literal["ignore", "replace", "error"]


class _Payload(msgspec.Struct, frozen=True):
    payload: Any


class Outgoing(_Payload, frozen=True, kw_only=True):
    """A message to send, with the options that `Queue.send` takes.

    Args:
        payload: bytes, which arrive unchanged, or anything that JSON can hold. Other values take the nearest JSON form:
            tuples and sets become lists; bytes inside a payload become base64 text; keys become strings; datetimes,
            UUIDs and Decimals become text; dataclasses, msgspec Structs and Pydantic models become objects. Subclasses
            of text and numbers become plain ones; a list or dict of a subclass becomes what its iteration gives, and is
            refused if it also stores other values. NaN and infinity are refused, and so are more than 500 levels of
            lists and objects in each other.
        delay: seconds (0 or more) or a timedelta until it is due. Without `delay` and `at`, it is due at once.
        at: an aware datetime at which it is due, instead of `delay`.
        id: 1 to 256 bytes; None for a random id.
        on_conflict: what to do if the id exists: "ignore" keeps the existing message, "replace" replaces it and resets
            its retries, "error" raises DuplicateMessage.
        expires_in: seconds or a timedelta from now, longer than `delay`. The message is dropped if it has not started
            within this time. Once started, it does not expire.
        max_retries: deliveries after the first one; None for the queue's own number.
        headers: a dict of names and strings, bytes, numbers, booleans or None. Names that begin with "delayq-" are
            refused: they are delayq's own.
        unique_for: seconds or a timedelta from the send. Within this time no other send with `unique_for` can use this
            `id`, even if this message has been acked meanwhile. `on_conflict` says what happens to such a send:
            "ignore" or "error".
        timeout: seconds (0.001 to 86,400) or a timedelta that each run of its handler may take; None for the consumer's
            `timeout`. A batch of messages always uses its consumer's.
        task: the name of the task that is to run; the payload is then an object of its arguments. The task's own
            `message` sets both.
        results: seconds (0.001 s to 366 days) or a timedelta for which the task's result is kept after its end; None
            to keep none.
    """

    delay: Seconds | None = None
    at: dt.datetime | None = None
    id: str | None = None
    on_conflict: OnConflict = "ignore"
    expires_in: Seconds | None = None
    max_retries: int | None = None
    headers: Headers | None = None
    unique_for: Seconds | None = None
    timeout: Seconds | None = None
    task: str | None = None
    results: Seconds | None = None


def unknown_option(name: str, *_others: str, call: str = "send") -> TypeError:
    """Return the error for an option that `Queue.send` does not have, with what it is here."""
    return unknown_argument(call, name, SEND, [*Outgoing.__struct_fields__, "wait_replicas"])


class SentMessage(NamedTuple):
    """The result of a send.

    Attributes:
        id: the message's id.
        due_at: when it is due. If an existing message was kept: that message's due time while it waits, else the time
            that was asked for.
        created: False if a message with this id existed and was kept or replaced.
    """

    id: str
    due_at: dt.datetime
    created: bool


class Death(NamedTuple):
    """How a delivery made its message a dead letter.

    Attributes:
        at_ms: when, by the server's clock.
        counted: whether the delivery counts as an attempt.
    """

    at_ms: int
    reason: str
    error: str
    counted: bool


class Deliveries(NamedTuple):
    """The counts of a message's deliveries before the running one.

    Attributes:
        past: those that counted as attempts and did not end in an ack.
        released: those that were handed back unstarted.
        attempts_reset: those of `past` that used up no retry: they came before the last requeue, or were handed back
            after they had begun.
        lost: those of the remaining ones whose lease ran out.
    """

    past: int = 0
    released: int = 0
    attempts_reset: int = 0
    lost: int = 0

    @classmethod
    def read(cls, stored: str | None) -> Deliveries:
        """Read ``past.released.attempts_reset.lost``; None, or a value that delayq does not write, means all zeros."""
        try:
            found = cls(*map(int, stored.split("."))) if stored else cls()
        except (TypeError, ValueError):
            return cls()
        return found if max(found) <= MAX_COUNT else cls()

    @property
    def retries_used(self) -> int:
        """Attempts since the last requeue that used up a retry; one more than there were if the message is dead."""
        return max(0, self.past - self.attempts_reset)

    def retries_of(self, most: int | None) -> int:
        """Return how many of a message's retries are used, if it has `most`; None if that is unknown."""
        return self.retries_used if most is None else min(self.retries_used, most)


_NONE_BEFORE = Deliveries()


def receipt_of(deliveries: str | None, micros: int) -> str:
    """Return the receipt of a delivery: the stored counts of the earlier ones, and the microsecond of the delivery."""
    return f"{deliveries or '0.0.0.0'}-{micros}"


# Tracking deliveries in the garbage collector would cost a receiver a tenth of its time. Nothing here refers back to a
# delivery, unless a handler puts it into its own payload.
class Handed(msgspec.Struct, eq=False, gc=False):
    """What a handler is called with: a message of a queue, or a record of a topic."""

    @property
    def labels(self) -> dict[str, Any]:
        """The fields that identify it in log lines."""
        raise NotImplementedError


class Delivery(MayOccur, Handed, Generic[P], eq=False, gc=False):
    """One delivery of a message, as data; `Message` adds the methods that settle it.

    Attributes:
        id: the message's id.
        body: the payload as bytes.
        headers: what the sender added. You can pass them on with another send.
        queue: the queue's name.
        attempt: 1 for the first. It rises with each delivery that counts, also after a requeue. After a release it
            stays the same, and it restarts at 1 if the id is used again after an ack or a cancel, so do not use it as a
            fencing token.
        fencing_token: the microsecond of the delivery, by the server's clock. It rises with each delivery of an id,
            however the last one ended, unless the server's clock is set back or a server whose clock is behind takes
            over.
        max_retries: the most deliveries after the first one.
        timeout: seconds that a run of its handler may take; None if its sender did not set it.
        receipt: proves that this delivery is the running one.
        lease_until: when the lease ends; a consumer renews it while the handler runs.
        lateness: seconds from the due time to the delivery.
        held_until: until when the lease is certain to hold, by `lease_now`; 0 once it is lost.
        settled: True once this delivery was acked, nacked, released or rejected through this object.
        failed: True once it was nacked or rejected through this object.
        released: True once it was released through this object.
        concurrency_key: the key whose limit it shares with other messages; None if it has no such limit.
        is_replaced: True once the message is known to have been replaced, in a queue with limits. This delivery keeps
            its concurrency slot until its handler ends.
        death: how this delivery, settled through this object, made it a dead letter; else None.
        is_unreadable: True once its payload was read and could not be, or had another type.
        is_final: True once its task has raised an error for which the task is not retried.
        task: the name of the task that it is for; None for any other message.
        cancelled: True once `Queue.cancel` with `running=True` has asked to stop it. A handler in a thread, or one of a
            batch, looks at this and raises an error to give up; async handlers, pool processes and programs are ended.
        on_cancel: called when it is to be stopped; None if its pool ends its handler.
        group: the group that it waited for, as `then` of `Queue.send_group`; None for any other message.
        next_report: from when, by `time.monotonic`, its next progress is written; 0 if none has been.
    """

    _owner: Any
    _process: int
    id: str
    _created_ms: int
    _envelope: Envelope
    _due_ms: int
    _earlier: str | None
    _handed_ms: float
    _lease_ms: int
    receipt: str
    held_until: float = 0.0
    settled: bool = False
    failed: bool = False
    released: bool = False
    concurrency_key: str | None = None
    is_replaced: bool = False
    death: Death | None = None
    is_unreadable: bool = False
    is_final: bool = False
    cancelled: bool = False
    on_cancel: Callable[[], object] | None = None
    next_report: float = 0.0
    _payload: Any = msgspec.UNSET

    @property
    def attempt(self) -> int:
        return self.before.past + 1

    @property
    def fencing_token(self) -> int:
        return round(self._handed_ms * 1000)

    @property
    def before(self) -> Deliveries:
        """The counts of the deliveries before this one."""
        return Deliveries.read(self._earlier) if self._earlier else _NONE_BEFORE

    @property
    def payload(self) -> P:
        """The payload as it was sent: bytes or the decoded JSON; in a typed handler, a value of the annotated type.

        Raises:
            UnreadableEnvelope: the body should be JSON and is not.
        """
        return self.read(open_body) if self._payload is msgspec.UNSET else self._payload

    def read(self, reader: Callable[[Envelope], P]) -> P:
        """Read the payload with `reader` and keep the result as `payload`."""
        try:
            self._payload = reader(self._envelope)
        except (UnreadableEnvelope, PayloadMismatch):
            self.is_unreadable = True
            raise
        return self._payload  # type: ignore[no-any-return]

    @property
    def labels(self) -> dict[str, Any]:
        return {"queue": self.queue, "id": self.id, "attempt": self.attempt}

    @property
    def body(self) -> bytes:
        return self._envelope.body

    @property
    def headers(self) -> dict[str, Any]:
        return self._envelope.sent_headers

    @property
    def occurrence(self) -> Occurrence | None:
        return occurrence(self.id, self._envelope.headers) if self._envelope.headers else None

    @property
    def task(self) -> str | None:
        return task_of(self._envelope.headers)

    @property
    def retention(self) -> Retention | None:
        """For how long its task's result is kept; None if it is not."""
        return retention_of(self._envelope.headers) if self._envelope.headers else None

    @property
    def group(self) -> str | None:
        return group_of(self._envelope.headers)

    @property
    def queue(self) -> str:
        return str(self._owner.name)

    @property
    def created_at(self) -> dt.datetime:
        return from_ms(self._created_ms)

    @property
    def due_at(self) -> dt.datetime:
        return from_ms(self._due_ms)

    @property
    def lease_until(self) -> dt.datetime:
        return from_ms(self._lease_ms)

    @property
    def max_retries(self) -> int:
        return self._envelope.max_retries

    @property
    def expires_at(self) -> dt.datetime | None:
        expires = self._envelope.expires_ms
        return None if expires is None else from_ms(self._created_ms + expires)

    @property
    def timeout(self) -> float | None:
        ms = self._envelope.timeout_ms
        return None if ms is None else ms / 1000

    @property
    def lateness(self) -> float:
        return max(0.0, (self._handed_ms - self._due_ms) / 1000)

    @property
    def stored(self) -> tuple[int, Envelope]:
        """The time of the send, ms, and the envelope."""
        return self._created_ms, self._envelope

    @property
    def due_ms(self) -> int:
        """The due time in ms, as the scripts take it."""
        return self._due_ms

    @property
    def retries_used(self) -> int:
        """Attempts before this one, since the last requeue."""
        return self.before.retries_used

    @property
    def handed_ms(self) -> float:
        """When it was handed out, by the server's clock."""
        return self._handed_ms

    def leased_until(self, lease_ms: int) -> None:
        """Note the end of the lease, ms, as set by the server."""
        self._lease_ms = lease_ms

    def admitted(self, key: str, due_ms: int) -> None:
        """Note that it may begin under its key, and its due time, ms, before it had to wait for others."""
        self.concurrency_key = key
        self._due_ms = due_ms

    @property
    def is_last(self) -> bool:
        """Whether a failure of this delivery leaves no retry."""
        return self.retries_used >= self.max_retries

    def fails_free(self, counts: bool) -> bool:
        """Whether a failure uses up no retry: it does not count, and the message has not expired."""
        return not counts and not self._is_over

    def dies_of(self, counts: bool) -> bool:
        """Whether a failure makes the message a dead letter."""
        return self.is_last and not self.fails_free(counts)

    @property
    def is_past_its_limit(self) -> bool:
        """Whether the message had used up all its deliveries before this one, because the last one was lost."""
        return self.retries_used > self.max_retries

    @property
    def is_suspect(self) -> bool:
        """Whether earlier deliveries seem to have crashed their consumers, so that this one should run alone."""
        lost = self.before.lost if self._earlier else 0
        return lost >= 2 or (lost == 1 and self.is_last)

    @property
    def is_expired(self) -> bool:
        """Whether this delivery was handed out after the message's expiry, by the server's clock.

        A message that was started once never expires, even if it comes back from a shutdown or from the dead letters.
        """
        return self._is_over and not self.before.past

    @property
    def _is_over(self) -> bool:
        expires = self._envelope.expires_ms
        return expires is not None and self._handed_ms >= self._created_ms + expires

    def __repr__(self) -> str:
        face = "aio." if type(self).__module__.startswith("delayq.aio.") else ""
        return f"<{face}{type(self).__name__} {self.id} of {self.queue}, attempt {self.attempt}>"


running: ContextVar[object] = ContextVar("running", default=None)
"""The message whose handler runs here; None where none does."""


def check_process(deliveries: Iterable[Delivery[Any]]) -> None:
    """Raise InvalidInput in a process that was forked after the delivery: its parent handles the messages."""
    process = os.getpid()  # once: asking takes longer than all else that is done here for a message
    for each in deliveries:
        if each._process != process:  # noqa: SLF001
            raise InvalidInput(
                f"message {each.id} was handed to process {each._process}, and process {process} was forked from it: "  # noqa: SLF001
                "settle or extend the message in the process that has received it"
            )


def headers_and_limit(delivery: Delivery[Any]) -> tuple[dict[str, Any], int | None]:
    """Return the headers with those that delayq adds, which handlers do not see, and the message's own limit, ms."""
    envelope = delivery._envelope  # noqa: SLF001
    return envelope.headers or {}, envelope.timeout_ms
