"""Outcomes that a node has not confirmed within their trip: they are not sent again while the reply may still come.

A second copy would be harmless, but it would find the receipt stale, and a success would be logged as refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.errors import DelayqError, StaleReceipt
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.operations.queue_context import QueueContext
from delayq.protocol.late_reply import Unanswered
from delayq.protocol.operation import Operation

MOST = 1000  # kept before those that were answered and not asked for are dropped

D = TypeVar("D", bound=Delivery)
Settle = Callable[[QueueContext, Sequence[tuple[D, oc.Outcome]]], Operation[list[bool | DelayqError]]]


class _LateOutcome(NamedTuple):
    """Where the reply to an outcome will be, and its place among the acks of one call."""

    reply: Unanswered
    place: int
    process: int


def note(context: QueueContext, messages: Sequence[Delivery], error: DelayqError) -> None:
    """Note the messages that a call without an answer settles."""
    if isinstance(error, Unanswered):
        if len(context.late_outcomes) >= MOST:  # those of deliveries that were given up are never asked for
            context.late_outcomes = {key: late for key, late in context.late_outcomes.items() if late.reply.is_open}
        for place, message in enumerate(messages):
            context.late_outcomes[message.id, message.receipt] = _LateOutcome(error, place, os.getpid())


def beside(
    context: QueueContext,
    settled: Sequence[tuple[D, oc.Outcome]],
    settle: Settle[D],
    confirm: Callable[[Delivery, oc.Outcome, Any], None],
) -> Operation[list[bool | DelayqError]]:
    """Settle outcomes, except those whose reply has come meanwhile, or still may.

    Args:
        confirm: notes an outcome other than an ack.
    """
    results = [_found(context, message, outcome, confirm) for message, outcome in settled]
    fresh = [each for each, result in zip(settled, results, strict=True) if result is None]
    others = iter((yield from settle(context, fresh)))
    return [next(others) if result is None else result for result in results]


def _found(
    context: QueueContext, message: Delivery, outcome: oc.Outcome, confirm: Callable[[Delivery, oc.Outcome, Any], None]
) -> bool | DelayqError | None:
    """Return whether an outcome was accepted; None if it must be sent."""
    late: _LateOutcome | None = context.late_outcomes.get((message.id, message.receipt))
    if late is None or late.process != os.getpid():
        return None
    if late.reply.is_open:
        return late.reply
    del context.late_outcomes[message.id, message.receipt]
    reply = late.reply.reply
    if isinstance(reply, StaleReceipt):
        return False
    if isinstance(reply, DelayqError):  # it was lost
        return None
    if isinstance(reply, list):
        message.settled = reply[late.place] == 1
        return message.settled
    confirm(message, outcome, reply)
    return True
