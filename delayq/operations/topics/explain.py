"""Explain where a record of a topic is, and what each group has done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.errors import InvalidInput
from delayq.model.positions import before, known_id, order
from delayq.model.record import table, text_of
from delayq.model.show import show_duration, show_moment
from delayq.model.text import encode_id, printable_id
from delayq.model.units import from_ms
from delayq.model.validation import check_id
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import REQUEUED, TopicCommands


def why(context: TopicContext, record_id: str) -> Operation[str]:
    """Say in one sentence where a record is, and what each group has done with it."""
    check_id(record_id)
    shards = yield from context.opened()
    subject = printable_id(record_id)
    waits = yield [_score(scripts, record_id) for scripts in shards]
    if due := [score for score in map(unwrap, waits) if score is not None]:
        cause = yield from _waiting(context, due[0])
        return f"{subject} {cause}"
    for scripts in shards if _is_id(record_id) else ():
        if (yield from execute(scripts.entries(record_id, record_id, 1))):
            groups = yield from _groups(scripts, record_id)
            return f"{subject} is in topic {context.name}: {'; '.join(groups) or 'it has no group'}"
    if _is_id(record_id):
        return f"{subject} is not in topic {context.name}: it was never published, or was trimmed or deleted"
    return (
        f"{subject} is not waiting in topic {context.name}: it was appended when it was due, with a new id, or was "
        "cancelled, or was never published"
    )


def waiting(context: TopicContext) -> Operation[int]:
    """Count the records that wait until they are due."""
    shards = yield from context.opened()
    keys = [scripts.keys.pending for scripts in shards]
    return sum(map(unwrap, (yield [Command(key, ("ZCARD", key), int) for key in keys])))


def _score(scripts: TopicCommands, record_id: str) -> Command[float | None]:
    key = scripts.keys.pending
    return Command(key, ("ZSCORE", key, encode_id(record_id)), lambda score: None if score is None else float(score))


def _waiting(context: TopicContext, due_ms: float) -> Operation[str]:
    now = from_ms((yield from execute(context.shards[0].time())))
    due = show_moment(from_ms(due_ms), now)
    if from_ms(due_ms) > now:
        return f"is not due until {due}, when it is appended to topic {context.name}"
    return f"has been due since {due}, and is appended as soon as a group reads topic {context.name}"


def _is_id(record_id: str) -> bool:
    try:
        known_id(record_id)
    except InvalidInput:
        return False
    return True


def _groups(scripts: TopicCommands, record_id: str) -> Operation[list[str]]:
    rows = sorted((table(row) for row in (yield from execute(scripts.groups()))), key=lambda row: text_of(row["name"]))
    names = [text_of(row["name"]) for row in rows]
    held = yield [scripts.unacked(name, "", 0, before(record_id), 1) for name in names]
    return [
        f"group {printable_id(name)} {_by_group(row, record_id, unwrap(entries)[1])}"
        for name, row, entries in zip(names, rows, held, strict=True)
    ]


def _by_group(row: dict[str, Any], record_id: str, unacked: Sequence[Any]) -> str:
    if unacked and text_of(unacked[0][0]) == record_id:
        _, consumer, idle_ms, deliveries = unacked[0]
        if text_of(consumer) == REQUEUED:
            return "waits for a consumer to take it: it was requeued, or handed back"
        ago, holder = show_duration(idle_ms / 1000), printable_id(text_of(consumer))
        return f"has not acked it: {holder} received it {ago} ago, delivery {deliveries}"
    if order(text_of(row["last-delivered-id"])) < order(record_id):
        return "has not received it yet"
    return "is past it: it acked it, made it a dead letter, or started after it"
