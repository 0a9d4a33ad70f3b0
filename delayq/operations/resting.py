"""Resting: how long a consumer without work may sleep, and who wakes instead."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from delayq.calls import Steps
from delayq.errors import DelayqError
from delayq.operations import slots
from delayq.operations.core import Core
from delayq.scripts import Rested


class Sleep(NamedTuple):
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


def rest(core: Core, name: str, most_ms: int, held: bool | None = False) -> Steps[Sleep]:
    """Ask, before a claim, for how long a consumer may sleep if that brings nothing; at most `most_ms`.

    Args:
        held: a limit has held back messages at the last claim: they are to be looked after, too.
    """
    asked = time.monotonic()
    results = yield [scripts.rest(name, most_ms, held) for scripts in core.shards]
    return _sleep(
        [Rested(most_ms * 1000, "") if isinstance(each, DelayqError) else each for each in results], asked, most_ms
    )


def watch(core: Core, name: str, most_ms: int) -> Steps[Sleep]:
    """Ask, at the end of an undisturbed sleep, for how long a consumer may sleep on; not at all: there is work.

    A shard that does not serve counts as work: the claim that follows tells what is wrong.
    """
    asked = time.monotonic()
    results = yield [scripts.watch(name, most_ms) for scripts in core.shards]
    yield from slots.look_through(core)  # what it lets go rings
    return _sleep([Rested(0, "") if isinstance(each, DelayqError) else each for each in results], asked, most_ms)


def _sleep(rested: Sequence[Rested], asked: float, most_ms: int) -> Sleep:
    # Counted from the question, not from the answer: the claim at the end of the sleep is as long under way as the
    # question was, so that it arrives when the message is due. Should it be quicker, it is told how much too early.
    least = min(each.micros for each in rested)
    expected = [each.message_id if each.micros == least else "" for each in rested]
    return Sleep(asked + least / 1_000_000, least < most_ms * 1000, expected)


def pass_on(core: Core, name: str) -> Steps[None]:
    """Ring for the others: the caller has a token that it cannot use, or has promised to be awake and will not be."""
    yield [call for scripts in core.shards for call in (scripts.rest(name, 1), scripts.ring())]
