"""How long an idle consumer may sleep, and which consumer wakes instead."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from delayq.errors import DelayqError
from delayq.model.interval import FALLBACK_MS
from delayq.model.placement import DELIVERABLE
from delayq.model.queue_stats import Counts
from delayq.operations import key_slots
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.replies import SleepReply

TIMED = (*DELIVERABLE, "unack")
"""The states from which a delivery may come."""


class SleepPlan(NamedTuple):
    """How long an idle consumer may sleep.

    Attributes:
        until: on the monotonic clock, in seconds.
        for_event: whether something is due then.
        expected: for each shard, the id of the message that is due then, or "".
    """

    until: float
    for_event: bool
    expected: Sequence[str]

    @property
    def for_message(self) -> bool:
        """Whether a message is due then, rather than the end of a lease."""
        return any(self.expected)


def plan_sleep(context: QueueContext, name: str, most_ms: int, held: bool | None = False) -> Operation[SleepPlan]:
    """Ask, before a claim, how long a consumer may sleep if the claim brings nothing; at most `most_ms`.

    Args:
        held: whether a limit or a pause held back messages at the last claim, so that their time counts too.
    """
    asked = time.monotonic()
    results = yield [scripts.plan_sleep(name, most_ms, held) for scripts in context.shards]
    return _sleep(
        [SleepReply(most_ms * 1000, "") if isinstance(each, DelayqError) else each for each in results], asked, most_ms
    )


def poll_idle(context: QueueContext, name: str, most_ms: int) -> Operation[SleepPlan]:
    """Ask, at the end of an undisturbed sleep, how much longer a consumer may sleep; 0 if there is work.

    An unavailable shard counts as work: the claim that follows raises the error.
    """
    asked, shards = time.monotonic(), context.shards
    asks = [context.watch.asks(scripts.keys.meta) for scripts in shards]
    results = yield [scripts.poll_idle(name, most_ms) for scripts in shards]
    for scripts, since, result in zip(shards, asks, results, strict=True):
        if not isinstance(result, DelayqError):
            context.watch.answered(scripts.keys.meta, since)
    yield from key_slots.look_through(context)  # messages that it releases ring the bell
    return _sleep([SleepReply(0, "") if isinstance(each, DelayqError) else each for each in results], asked, most_ms)


def next_event(context: QueueContext, name: str) -> Operation[float | None]:
    """Return when the next message of a queue falls due, or a lease ends, in milliseconds; None if nothing waits.

    It never tells a consumer to wake, so it suits a clock that a test moves.
    """
    shards = yield from context.opened()
    counts: list[Counts] = [unwrap(result) for result in (yield [scripts.stats() for scripts in shards])]
    if any(each.paused_ms is not None for each in counts):
        return min((each.paused_until_ms for each in counts if each.paused_until_ms is not None), default=None)
    now = counts[0].now_ms
    heads = [math.ceil(head) for each in counts for state, head in each.heads_ms.items() if state in TIMED]
    if not any(head <= now for head in heads):
        return min(heads, default=None)
    # A limit holds back what is already due: look again when the limit allows it, or as often as a consumer does.
    rested = yield [scripts.poll_idle(name, FALLBACK_MS) for scripts in shards]
    return now + (min(math.ceil(unwrap(each).micros / 1000) for each in rested) or FALLBACK_MS)


def _sleep(rested: Sequence[SleepReply], asked: float, most_ms: int) -> SleepPlan:
    # Count from the request, not from the reply: the claim at the end of the sleep takes as long to arrive as this
    # request did, so it arrives when the message is due. If it is faster, its reply says how much too early it was.
    least = min(rested).micros
    expected = [each.message_id if each.micros == least else "" for each in rested]
    return SleepPlan(asked + least / 1_000_000, least < most_ms * 1000, expected)


def pass_on(context: QueueContext, name: str) -> Operation[None]:
    """Ring for the others, as the caller has a token that it cannot use, or promised to wake and will not."""
    yield [call for scripts in context.shards for call in (scripts.plan_sleep(name, 1), scripts.ring())]
