"""Everything that delayq raises.

::

    DelayqError
    ├── InvalidInput (ValueError)          the caller's argument; nothing was changed
    │   ├── InvalidName                    a queue's name, a prefix or a message id
    │   ├── InvalidTime                    a delay, a due time, a lease
    │   ├── InvalidURL                     a connection URL
    │   ├── PayloadTooLarge                over the queue's limit
    │   ├── PayloadNotSerializable         neither bytes nor something that JSON can hold
    │   └── OtherShard                     a message to send with an ack belongs to another shard
    ├── SendError                          the send went through, but not as requested; see `sent`
    │   ├── DuplicateMessage               on_conflict="error", and the id exists        code DUPLICATE
    │   ├── QueueFull                      the queue holds its max_length: these messages were not stored
    │   └── NotReplicated                  too few replicas confirmed in time
    ├── StaleReceipt                       the delivery has ended                            code STALE
    ├── UnreadableEnvelope                 the stored bytes are not an envelope that this version reads
    ├── PayloadMismatch                    the payload does not match its handler's annotation
    │   └── WrongArguments (TypeError)     a call of a task has arguments that its function does not take
    ├── QueueMismatch                      the stored queue, or topic, is not the one that was opened
    │   ├── FormatTooNew                   written by a newer delayq                         code FORMAT
    │   ├── ClientTooOld                   uses what this delayq would misread               code NEEDS
    │   └── ShardsMismatch                 recorded with another number of shards            code SHARDS
    ├── TopicError                         the call does not fit what the topic holds; nothing was changed
    │   ├── RecordOrder                    the given id is not after the last record's       code ORDER
    │   ├── UnknownGroup                   the topic has no such group                       code GROUP
    │   ├── UnknownConsumer                the group has no such consumer                    code CONSUMER
    │   └── HoldsRecords                   the consumer to remove holds records              code HOLDS
    ├── ServerError                        the Redis server, or the connection to it
    │   ├── ServerUnreachable (ConnectionError)
    │   ├── LoginRefused
    │   ├── ServerTooOld
    │   ├── ServerOutOfMemory              maxmemory reached: the refused command stored nothing
    │   ├── ServerNotReady                 loading, read-only, busy, cluster down: try again later
    │   └── KeyOverwritten                 a key holds another type: another program has written to it
    ├── StoreError                         the embedded store
    │   ├── NoEmbeddedServer               there is no wheel and no redis-server for this machine
    │   └── StoreTooNew                    the folder was written by a newer server
    ├── PipelineError                      the data pipeline on Spark
    │   ├── NoJava                         this machine has no Java that Spark runs on, and no wheel has one for it
    │   ├── RowRefused                     a row of a table cannot be sent as a message
    │   ├── DataLost                       records were trimmed before they were read
    │   └── LakeMismatch                   the lake, its manifest and Redis do not agree
    ├── HandlerMissing                     a consumer without a handler
    │   └── UnknownTask                    a message names a task that the consumer does not have
    ├── ResultError                        about the result of a task
    │   ├── TaskFailed                     the task has failed permanently
    │   ├── ResultTimeout (TimeoutError)   the task has not ended in time
    │   └── NoResult                       the message is unknown, or its result expired or was not kept
    ├── StartFailed                        an on_start function failed: the consumer did not start
    └── Verdict                            raised by a handler to decide
        ├── Reject                         → dead
        ├── RetryAfter                     → retry, then
        ├── NotKept                        → dead; what middleware sees if JSON cannot hold a task's result
        └── ReturnedFalse                  → retry; what middleware sees if the handler returned False

An error that a script reports begins with a code; ``code`` names it here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, ClassVar


class DelayqError(Exception):
    """The root of all errors of delayq."""

    code: ClassVar[str | None] = None


class InvalidInput(DelayqError, ValueError):
    """An argument is outside what the call accepts; nothing was changed."""


class InvalidName(InvalidInput):
    """A queue's name, a prefix or a message id is empty, too long or holds a forbidden character."""


class InvalidTime(InvalidInput):
    """A delay, a due time or a lease is negative, naive, not a number or out of range."""


class InvalidURL(InvalidInput):
    """A connection URL has an unknown scheme, or lacks a part."""


class PayloadTooLarge(InvalidInput):
    """A payload is over the queue's limit."""


class PayloadNotSerializable(InvalidInput):
    """A payload is neither bytes nor something that JSON can hold."""


class OtherShard(InvalidInput):
    """A message cannot be sent in one step with an ack: its id belongs to another shard of the queue."""


class SendError(DelayqError):
    """A send went through, but not as requested.

    Attributes:
        sent: the result for each message that was sent (a list of `SentMessage`).
    """

    def __init__(self, text: str, sent: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.sent = list(sent)


class DuplicateMessage(SendError):
    """A message with this id exists, and ``on_conflict="error"`` was asked for."""

    code = "DUPLICATE"


class QueueFull(SendError):
    """The queue holds its `max_length`: some messages were not stored. All others of the call were.

    Attributes:
        unsent: positions, from 0, of the messages given to `send_many` that are not stored; [0] for `send`.
        ids: of these messages.
        max_length: of the queue.
    """

    def __init__(
        self,
        text: str,
        sent: Sequence[Any] = (),
        unsent: Sequence[int] = (),
        ids: Sequence[str] = (),
        max_length: int = 0,
    ) -> None:
        super().__init__(text, sent)
        self.unsent = list(unsent)
        self.ids = list(ids)
        self.max_length = max_length


class StaleReceipt(DelayqError):
    """The delivery has ended: it was settled, or its lease ran out."""

    code = "STALE"


class UnreadableEnvelope(DelayqError):
    """The stored bytes are not an envelope that this version reads."""


class PayloadMismatch(DelayqError):
    """The payload does not match its handler's annotation: a field is missing, or has another type."""


class WrongArguments(PayloadMismatch, TypeError):
    """A task cannot be called with these arguments; nothing was sent."""


class NotReplicated(SendError):
    """Fewer replicas than requested confirmed the send in time.

    `send_many` then stops: what it has sent so far is stored on the master, the rest is not stored. If this is unknown
    because a node of a cluster is unavailable, it raises that node's error instead.

    Attributes:
        unconfirmed: the ids of messages that are stored, but that too few replicas confirmed.
        unsent: positions, from 0, of the messages given to `send_many` that are not stored.
    """

    def __init__(
        self, text: str, sent: Sequence[Any] = (), unconfirmed: Sequence[str] = (), unsent: Sequence[int] = ()
    ) -> None:
        super().__init__(text, sent)
        self.unconfirmed = list(unconfirmed)
        self.unsent = list(unsent)


class QueueMismatch(DelayqError):
    """The queue, or the topic, that Redis holds is not the one that was opened."""


class FormatTooNew(QueueMismatch):
    """The data of the queue, or the topic, was written by a newer format version than this delayq reads."""

    code = "FORMAT"


class ClientTooOld(QueueMismatch):
    """The queue uses a feature that this delayq would misread; the text names the version to use. Nothing was changed.

    Deliveries can still be settled, so a consumer ends in good order.
    """

    code = "NEEDS"


class ShardsMismatch(QueueMismatch):
    """The queue, or the topic, was created with another number of shards."""

    code = "SHARDS"


class TopicError(DelayqError):
    """A call does not fit what the topic holds; nothing was changed."""


class RecordOrder(TopicError):
    """The given id does not come after that of the topic's last record."""

    code = "ORDER"


class UnknownGroup(TopicError):
    """The topic has no group of this name."""

    code = "GROUP"


class UnknownConsumer(TopicError):
    """The group has no consumer of this name."""

    code = "CONSUMER"


class HoldsRecords(TopicError):
    """The consumer to remove holds records that it has not acked."""

    code = "HOLDS"


class ServerError(DelayqError):
    """The Redis server, or the connection to it, failed."""


class ServerUnreachable(ServerError, ConnectionError):
    """There is no connection, or it broke. A call in progress may or may not have taken effect."""


class LoginRefused(ServerError):
    """The server refuses the user name or the password, or the user lacks a right."""


class ServerTooOld(ServerError):
    """The server is older than Redis 6.2."""


class ServerOutOfMemory(ServerError):
    """The server has reached its maxmemory; the command that it refused has stored nothing."""


class ServerNotReady(ServerError):
    """The server is loading, read-only, busy with a script, or its cluster is down; try again later."""


class KeyOverwritten(ServerError):
    """A key of the queue or topic holds another type: another program has written to it."""


class StoreError(DelayqError):
    """The embedded store cannot be used."""


class NoEmbeddedServer(StoreError):
    """No redis-server for the embedded store: neither in a wheel that fits this machine nor on the path."""


class StoreTooNew(StoreError):
    """The embedded store's folder was written by a newer server than the one at hand."""


class PipelineError(DelayqError):
    """The data pipeline on Spark failed."""


class NoJava(PipelineError):
    """This machine has no Java that Spark runs on, and no wheel has one for it."""


class RowRefused(PipelineError):
    """A row of a table cannot be sent as a message."""


class DataLost(PipelineError):
    """Records were trimmed before they were read."""


class LakeMismatch(PipelineError):
    """The lake, its manifest and Redis do not agree."""


class HandlerMissing(DelayqError):
    """A consumer was started for a queue that has no handler."""


class UnknownTask(HandlerMissing):
    """A message names a task that this consumer does not have; another one may have it."""

    def __init__(self, text: str, task: str = "") -> None:
        super().__init__(text)
        self.task = task


class ResultError(DelayqError):
    """The result of a task cannot be had."""


class TaskFailed(ResultError):
    """A task has failed permanently: its message died or expired.

    Attributes:
        type: of the last exception, with its module unless that is `builtins`; "" if there was none.
        text: of that exception, or why no consumer ran the task.
        traceback: up to 8 KiB of its end; "" if there is none.
        reason: why the message died, as with dead letters, or "expired".
    """

    def __init__(self, said: str, type: str = "", text: str = "", traceback: str = "", reason: str = "") -> None:  # noqa: A002
        super().__init__(said)
        self.type = type
        self.text = text
        self.traceback = traceback
        self.reason = reason


class ResultTimeout(ResultError, TimeoutError):
    """A task has not ended within the time that its result was waited for; its message still waits or runs."""


class NoResult(ResultError):
    """A message is unknown or gone, and no result of it is kept; or it is another message that has this id now."""


class StartFailed(DelayqError):
    """A function registered with `Middleware.on_start` failed: the consumer did not start."""


class Verdict(DelayqError):
    """Raised by a handler to decide what becomes of its message."""


class Reject(Verdict):
    """The message goes to the dead letters at once, even if retries are left.

    Args:
        reason: kept with the dead letter.
    """

    def __init__(self, reason: str = "rejected") -> None:
        super().__init__(reason)
        self.reason = reason


class RetryAfter(Verdict):
    """The message is tried again after a delay that the handler chooses, while retries are left.

    Args:
        delay: seconds (0 or more) or a timedelta.
        reason: kept as the message's last error.
        counts: False uses no retry, for work that is not ready yet: the message may come back any number of times.
            Once its `expires_in` is over, if it has one, each failure uses a retry again.
    """

    def __init__(self, delay: float | dt.timedelta, reason: str = "", *, counts: bool = True) -> None:
        super().__init__(reason or f"retry after {delay}")
        self.delay = delay
        self.counts = counts


class NotKept(Verdict):
    """A task has returned what cannot be kept as its result: its message dies at once, as the work is done."""


class ReturnedFalse(Verdict):
    """What middleware sees if the handler returned False."""
