"""Look at the results of tasks: what has become of their messages, and the records of those that have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from delayq.errors import KeyOverwritten, LoginRefused
from delayq.model.message_info import MessageInfo, result_of
from delayq.model.result import RETRY, KeptRecord, TaskResult, read_record, retention_of
from delayq.model.validation import check_id
from delayq.operations.inspect import get
from delayq.operations.queue_context import QueueContext, time_call
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import MAX_RESULTS

Status: TypeAlias = Literal["kept", "dead", "live", "plain", "gone"]
"""What the script ``results`` says of a message."""

Waited: TypeAlias = tuple[str, str]
"""A message: its id, and its token, or "" for the latest message of the id."""

TRIES = 10  # a message may move between the two looks at it


class Found(NamedTuple):
    """What has become of a message.

    Attributes:
        result: how its task ended; None unless the status is "kept" or "dead".
        body: what the task returned, as JSON; None unless it is done.
    """

    status: Status
    result: TaskResult | None = None
    body: bytes | None = None


def look(context: QueueContext, waited: Sequence[Waited]) -> Operation[list[Status]]:
    """Say what has become of messages, in their order, in one round trip."""
    yield from context.opened()
    statuses: list[Any] = [None] * len(waited)
    calls, targets = [], []
    for scripts, positions in context.by_shard(range(len(waited)), lambda position: waited[position][0]):
        for start in range(0, len(positions), MAX_RESULTS):
            chunk = positions[start : start + MAX_RESULTS]
            calls.append(scripts.results([waited[position] for position in chunk]))
            targets.append(chunk)
    replies = yield calls
    for chunk, reply in zip(targets, replies, strict=True):
        for position, status in zip(chunk, unwrap(reply), strict=True):
            statuses[position] = status.decode()
    return statuses


def find(context: QueueContext, message_id: str, token: str = "") -> Operation[Found]:
    """Return what has become of a message.

    Raises:
        InvalidName: no message can have this id.
    """
    check_id(message_id)
    for _ in range(TRIES):
        (status,) = yield from look(context, [(message_id, token)])
        if status == "kept":
            record = yield from _record(context, message_id)
            if record is not None and token in ("", record.token):
                return Found(status, record.result, record.body)
        elif status == "dead":
            info = yield from get(context, message_id)
            if info is not None and info.state == "dead":
                return Found(status, result_of(info))
        else:
            return Found(status)
    return Found("gone")


def latest(context: QueueContext, message_id: str) -> Operation[TaskResult | None]:
    """Return the record of the latest message that had an id, even if it will be retried; None if there is none."""
    check_id(message_id)
    yield from context.opened()
    record = yield from _record(context, message_id)
    return record.result if record else None


def seen(context: QueueContext, message_id: str, info: MessageInfo | None) -> Operation[TaskResult | None]:
    """Return the record of a message as people look at it: of the latest with this id, if it is gone.

    Args:
        info: what `get` has returned; a record of an earlier message is not this one's.

    Returns:
        None without a record, or if the login may not read it, or if another program has overwritten it.
    """
    retention = retention_of(info.envelope.headers) if info is not None and info.envelope is not None else None
    if info is not None and retention is None:
        return None
    record = None
    with contextlib.suppress(LoginRefused, KeyOverwritten):
        yield from context.opened()
        record = yield from _record(context, message_id)
    if record is None or (retention is not None and retention.token != record.token):
        return None
    lives_again = info is not None and info.state != "dead" and record.result.status != RETRY  # it was requeued
    return None if lives_again else record.result


def _record(context: QueueContext, message_id: str) -> Operation[KeptRecord | None]:
    fields, left, now = yield [*context.shard(message_id).record(message_id), time_call(context)]
    return read_record(context.name, message_id, unwrap(fields), unwrap(left), unwrap(now))


def last_finished(context: QueueContext) -> Operation[list[str]]:
    """Return where the streams of ended messages end: a stream id for each shard."""
    return list(map(unwrap, (yield [shard.last_finished() for shard in context.shards])))


def finished(context: QueueContext, after: Iterable[str]) -> Operation[tuple[list[str], set[str]]]:
    """Return the ids of messages that have ended with a result since the given stream ids, and the new stream ids."""
    seen = list(after)
    calls = [shard.finished(last) for shard, last in zip(context.shards, seen, strict=True)]
    ids: set[str] = set()
    for number, reply in enumerate((yield calls)):
        entries = unwrap(reply)
        if entries:
            seen[number] = entries[-1][0]
            ids.update(message_id for _, message_id in entries)
    return seen, ids
