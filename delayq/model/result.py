"""The result of a task: for how long a message keeps one, and the record of how its task ended."""

from __future__ import annotations

import datetime as dt
import secrets
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from delayq.errors import (
    DelayqError,
    InvalidInput,
    InvalidTime,
    NoResult,
    NotKept,
    PayloadNotSerializable,
    ResultTimeout,
    TaskFailed,
    UnreadableEnvelope,
)
from delayq.log import own_frames
from delayq.model import outcome as oc
from delayq.model.envelope import (
    MAX_PAYLOAD_BYTES,
    RESULTS,
    Envelope,
    decode_json,
    encode_json,
    parse,
)
from delayq.model.task_name import task_of
from delayq.model.units import MAX_PAUSE_MS, Seconds, from_ms, span_ms

MAX_TRACE_BYTES = 8 * 1024
TOKEN_BYTES = 8
RECORD_FIELDS = ("token", "status", "value", "error", "started", "attempted", "at", "attempts", "consumers", "message")
"""The fields of a record, which is a hash: ``lua/prelude.lua`` writes them in `keep_result`."""

ResultStatus: TypeAlias = Literal["done", "dead", "expired", "retry"]
DONE: Final = "done"
DEAD: Final = "dead"
EXPIRED: Final = "expired"
RETRY: Final = "retry"
NOTHING = b"null"
"""The value of a task that ended without one, as JSON."""


class Retention(NamedTuple):
    """What the header of a message with results says.

    Attributes:
        keep_ms: how long the result is kept after the end.
        token: tells the message from others that had or get its id.
    """

    keep_ms: int
    token: str


class KeptFor(dt.timedelta):
    """A time to keep a result, with the token for the message."""

    token: str

    @classmethod
    def of(cls, results: Seconds) -> KeptFor:
        """Return it with a fresh token; raises InvalidTime."""
        made = cls(milliseconds=keep_ms(results))
        made.token = getattr(results, "token", "") or secrets.token_hex(TOKEN_BYTES)
        return made


def keep_ms(results: Seconds) -> int:
    """Return how long results are kept, 1 ms to 366 days; raises InvalidTime."""
    ms = span_ms(results, "results")
    if not 1 <= ms <= MAX_PAUSE_MS:
        raise InvalidTime(f"results={results!r} is not between 0.001 s and 366 days")
    return ms


def header_of_results(results: Seconds | None, task: str | None, token: str = "") -> dict[str, str]:
    """Return the header of a message that keeps its task's result; empty for None.

    Args:
        token: "" for that of `results`, or a random one.

    Raises:
        InvalidTime, InvalidInput
    """
    if results is None:
        return {}
    if task is None:
        raise InvalidInput(f"results={results!r} is for tasks, and this message is for none: also give task=")
    return {RESULTS: f"{keep_ms(results)}-{token or KeptFor.of(results).token}"}


def retention_of(headers: Mapping[str, Any] | None) -> Retention | None:
    """Return what a message's headers say; None if it keeps no result, or if they are not as delayq writes them."""
    written = headers.get(RESULTS) if headers else None
    if not isinstance(written, str):
        return None
    ms, _, token = written.partition("-")
    valid = ms.isascii() and ms.isdigit() and len(ms) < 12 and token.isascii() and token.isalnum() and int(ms)
    return Retention(int(ms), token) if valid else None


def encoded_value(value: Any) -> bytes:
    """Return what a task returned as JSON; raises NotKept if it cannot be kept."""
    try:
        body = encode_json(value)
    except PayloadNotSerializable as error:
        said = str(error).replace("the payload", "the result").replace("a payload", "a result")
        raise NotKept(f"{said}; return something else, or register the task without results=") from error
    if len(body) > MAX_PAYLOAD_BYTES:
        raise NotKept(
            f"the result takes {len(body):,} bytes: at most {MAX_PAYLOAD_BYTES:,} are kept; store it elsewhere"
        )
    return body


class TaskError(NamedTuple):
    """Why an attempt failed.

    Attributes:
        type: of the exception, with its module unless that is `builtins`.
        text: of the exception.
        traceback: up to 8 KiB of its end; "" if there is none.
        reason: why the message died, as with dead letters; "" if it did not.
    """

    type: str = ""
    text: str = ""
    traceback: str = ""
    reason: str = ""

    @classmethod
    def of(cls, error: str, reason: str = "") -> TaskError:
        """Return it for an error as it is stored with a message: "Type: text", or a text alone."""
        kind, colon, text = error.partition(": ")
        return cls(kind, text, "", reason) if colon and kind.isidentifier() else cls("", error, "", reason)

    @property
    def line(self) -> str:
        """The type and the text."""
        return f"{self.type}: {self.text}" if self.type else self.text

    @property
    def cause(self) -> str:
        """The reason, the type and the text; "" if nothing is known."""
        return oc.cause(self.reason or None, self.line or None)

    def shown(self, show: Callable[[str], str]) -> TaskError:
        """Return it with texts that `show` makes visible. Type and text are one: either alone may say too much."""
        line = show(self.line)
        type_, text = (self.type, self.text) if line == self.line else ("", line)
        return TaskError(type_, text, show(self.traceback), show(self.reason))


def encoded_error(error: str, reason: str = "", cause: BaseException | None = None) -> bytes:
    """Return why an attempt failed, as JSON."""
    made = TaskError.of(error, reason)
    if cause is not None:
        remote = cause.__cause__ if isinstance(cause.__cause__, oc.RemoteTraceback) else cause
        trace = str(remote.args[0]) if isinstance(remote, oc.RemoteTraceback) else _trace(cause)
        end = trace.encode("utf-8", "backslashreplace")[-MAX_TRACE_BYTES:].decode(errors="ignore")
        made = made._replace(traceback=end)
        if not isinstance(cause, oc.RemoteTraceback):
            named = type(cause)
            module = "" if named.__module__ == "builtins" else f"{named.__module__}."
            made = made._replace(type=module + named.__qualname__)
    return msgspec.json.encode(made)


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(*own_frames(error)))
    except BaseException:  # noqa: BLE001  # an error whose __str__ raises
        return oc.error_text(error)


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended, or failed for now.

    Attributes:
        id: of its message.
        queue: the queue's name.
        status: "done"; "dead" for a dead letter; "expired" if it was not started in time; "retry" after an attempt that
            failed while retries are left.
        task: the task's name; None if it is unknown, as the next four.
        arguments: those of the call, as JSON holds them.
        headers: what the sender added.
        created_at: when the message was sent, by the server's clock, as the other times.
        value: what the task returned, as JSON holds it; None unless it is "done".
        error: of the last attempt that failed; None if there was none.
        started_at: when the message was first handed out. A delivery whose consumer was lost has left no time here.
        last_attempted_at: when it was last handed out.
        finished_at: when it ended; None for "retry".
        attempts: deliveries that counted.
        consumers: the names of those that ran it, in order, as far as they are known; the last ones of very many.
        kept_until: when the record expires; None for a dead letter that has no record of its own.
    """

    id: str
    queue: str
    status: ResultStatus
    task: str | None = None
    arguments: dict[str, Any] | None = None
    headers: dict[str, Any] | None = None
    created_at: dt.datetime | None = None
    value: Any = None
    error: TaskError | None = None
    started_at: dt.datetime | None = None
    last_attempted_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    attempts: int = 0
    consumers: tuple[str, ...] = ()
    kept_until: dt.datetime | None = None


class KeptRecord(NamedTuple):
    """A record as it is stored, without the message.

    Attributes:
        token: of the message.
        body: what the task returned, as JSON; None unless it is done.
    """

    token: str
    result: TaskResult
    body: bytes | None


def read_record(
    queue: str, message_id: str, stored: Sequence[bytes | None], left_ms: int, now_ms: int
) -> KeptRecord | None:
    """Return a stored record; None if there is none, or another program has written it.

    Args:
        stored: the values of RECORD_FIELDS.
        left_ms: how long it is kept, ms.
    """
    fields = {name: value for name, value in zip(RECORD_FIELDS, stored, strict=True) if value is not None}
    try:
        return _read(queue, message_id, fields, left_ms, now_ms)
    except (KeyError, ValueError, msgspec.MsgspecError, OverflowError):
        return None


def _read(queue: str, message_id: str, fields: Mapping[str, bytes], left_ms: int, now_ms: int) -> KeptRecord:
    status: Any = fields["status"].decode()
    attempts = int(fields["attempts"])
    body = fields["value"] if status == DONE else None
    error = msgspec.json.decode(fields["error"], type=TaskError) if fields.get("error") else None
    known = call_of(fields["message"]) if fields.get("message") else {}
    result = TaskResult(
        id=message_id,
        queue=queue,
        status=status,
        value=None if body is None else _plain(body),
        error=error,
        started_at=from_ms(float(fields["started"])) if attempts else None,
        last_attempted_at=from_ms(float(fields["attempted"])) if attempts else None,
        finished_at=None if status == RETRY else from_ms(int(fields["at"])),
        attempts=attempts,
        consumers=tuple(fields["consumers"].decode(errors="replace").split("\n")[:-1]),
        kept_until=from_ms(now_ms + left_ms) if left_ms >= 0 else None,
        **known,
    )
    return KeptRecord(fields["token"].decode(), result, body)


def call_of(stored: bytes) -> dict[str, Any]:
    """Return the fields of a record that come from the stored message; empty if it cannot be read."""
    try:
        created, envelope = parse(stored)
    except UnreadableEnvelope:
        return {}
    return {"created_at": from_ms(created), **called(envelope)}


def called(envelope: Envelope) -> dict[str, Any]:
    """Return the task that a message calls, its arguments, unless they cannot be read, and its headers."""
    try:
        arguments = decode_json(envelope.body)
    except UnreadableEnvelope:
        arguments = None
    return {
        "task": task_of(envelope.headers),
        "arguments": arguments if isinstance(arguments, dict) else None,
        "headers": envelope.sent_headers,
    }


def _plain(body: bytes) -> Any:
    try:
        return decode_json(body)
    except UnreadableEnvelope:
        return None


def missing(message_id: str, status: str, task: str = "the task") -> DelayqError:
    """Return the error for callers that wait for a task which has no result yet, or none at all.

    Args:
        status: what `operations.results` says of the message.
    """
    if status == "live":
        return ResultTimeout(f"{task} of message {message_id} has not ended yet")
    if status == "plain":
        return NoResult(f"message {message_id} keeps no result: send it, or register {task}, with results=")
    return NoResult(
        f"no result of message {message_id} is kept: it is unknown, its task keeps none, it was cancelled, purged or "
        "replaced, or its result has expired"
    )


def failure(result: TaskResult) -> TaskFailed:
    """Return the error for callers that wait for a task that will not be retried."""
    error = result.error or TaskError()
    said = error.cause or result.status
    name = f"task {result.task!r}" if result.task else "the task"
    return TaskFailed(f"{name} of message {result.id} failed: {said}", *error)
