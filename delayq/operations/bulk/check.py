"""Hold waiting messages and dead letters against the handlers of a program."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from delayq.errors import UnreadableEnvelope
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.envelope import parse
from delayq.model.misfit import Misfit, Misfits, Where, reason_of
from delayq.model.placement import Row, State
from delayq.model.text import decode_text, encode_id
from delayq.operations.bulk.search import count
from delayq.operations.fetch import fetch
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.operations.walk import Walk
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands

STATES: tuple[State, ...] = ("held", "pending", "ready", "retry", "dead")
"""In the order in which messages move on, so that none slips past; one that moves meanwhile may be counted twice."""


class Checked(NamedTuple):
    """What became of a look at a queue.

    Attributes:
        looked_at: how many messages it saw.
        failing: how many of them would fail.
        misfits: those in groups, the largest first.
    """

    looked_at: int
    failing: int
    misfits: Sequence[Misfit]


def check_messages(
    context: QueueContext,
    judge: Callable[[Delivery[Any]], Exception | None],
    progress: Callable[[int, int], object],
) -> Operation[Checked]:
    """Look at all waiting messages and dead letters; change nothing, and hold one page of them at a time.

    Args:
        judge: returns the error with which a delivery would fail before its handler runs, or None.
        progress: called after each page with how many messages were looked at, and about how many there are.
    """
    total = yield from count(context, STATES)
    shards = yield from context.opened()
    looked_at, misfits = 0, Misfits()
    for state in STATES:
        where: Where = "dead" if state == "dead" else "waiting"
        for scripts in shards:
            walk = Walk(scripts, state, MAX_IDS - 1)
            while rows := (yield from walk.page()):
                yield from _look(context, scripts, where, rows, judge, misfits)
                looked_at += len(rows)
                progress(looked_at, max(looked_at, total))
    return Checked(looked_at, misfits.count, misfits.found)


def _look(
    context: QueueContext,
    scripts: QueueCommands,
    where: Where,
    rows: list[Row],
    judge: Callable[[Delivery[Any]], Exception | None],
    misfits: Misfits,
) -> Operation[None]:
    now_ms = yield from server_ms(context)
    ids = [message_id for message_id, _ in rows]
    key = scripts.keys.attempts
    counts = yield from execute(Command(key, ("HMGET", key, *map(encode_id, ids)), list))
    earlier = dict(zip(ids, map(decode_text, counts), strict=True))
    while ids:
        stored = yield from fetch(scripts, ids)
        for message_id, envelope in zip(ids, stored, strict=False):
            if envelope is None:  # it has ended meanwhile
                continue
            try:
                created_ms, opened = parse(envelope)
            except UnreadableEnvelope as error:
                misfits.add(where, message_id, None, oc.REASON_UNREADABLE, error)
                continue
            message: Delivery[Any] = Delivery(
                context, os.getpid(), message_id, created_ms, opened, now_ms, earlier[message_id], now_ms, 0, ""
            )
            if where == "waiting" and message.is_expired:  # the expiry of a dead letter begins with its requeue
                continue
            if (failure := judge(message)) is not None:
                misfits.add(where, message_id, message.task or message.schedule, reason_of(failure, message), failure)
        ids = ids[len(stored) :]
