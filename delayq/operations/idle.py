"""How long a consumer without work may sleep, and who wakes instead."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from delayq.errors import DelayqError
from delayq.operations import key_slots
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation
from delayq.protocol.replies import SleepReply


class SleepPlan(NamedTuple):
    """How long an idle consumer may sleep.

    Attributes:
        until: on the monotonic clock, in seconds.
        for_event: something is due then.
        expected: the id of the message that is due then, a shard; "" where there is none.
    """

    until: float
    for_event: bool
    expected: Sequence[str]

    @property
    def for_message(self) -> bool:
        """Whether what is due then is a message, not the end of a lease."""
        return any(self.expected)


def plan_sleep(context: QueueContext, name: str, most_ms: int, held: bool | None = False) -> Operation[SleepPlan]:
    """Ask, before a claim, for how long a consumer may sleep if that brings nothing; at most `most_ms`.

    Args:
        held: a limit or a pause has held back messages at the last claim: they are to be looked after, too.
    """
    asked = time.monotonic()
    results = yield [scripts.plan_sleep(name, most_ms, held) for scripts in context.shards]
    return _sleep(
        [SleepReply(most_ms * 1000, "") if isinstance(each, DelayqError) else each for each in results], asked, most_ms
    )


def poll_idle(context: QueueContext, name: str, most_ms: int) -> Operation[SleepPlan]:
    """Ask, at the end of an undisturbed sleep, for how long a consumer may sleep on; not at all: there is work.

    A shard that does not serve counts as work: the claim that follows tells what is wrong.
    """
    asked = time.monotonic()
    results = yield [scripts.poll_idle(name, most_ms) for scripts in context.shards]
    yield from key_slots.look_through(context)  # what it lets go rings
    return _sleep([SleepReply(0, "") if isinstance(each, DelayqError) else each for each in results], asked, most_ms)


def _sleep(rested: Sequence[SleepReply], asked: float, most_ms: int) -> SleepPlan:
    # Counted from the question, not from the answer: the claim at the end of the sleep is as long under way as the
    # question was, so that it arrives when the message is due. Should it be quicker, it is told how much too early.
    least = min(each.micros for each in rested)
    expected = [each.message_id if each.micros == least else "" for each in rested]
    return SleepPlan(asked + least / 1_000_000, least < most_ms * 1000, expected)


def pass_on(context: QueueContext, name: str) -> Operation[None]:
    """Ring for the others: the caller has a token that it cannot use, or has promised to be awake and will not be."""
    yield [call for scripts in context.shards for call in (scripts.plan_sleep(name, 1), scripts.ring())]
