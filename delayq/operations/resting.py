"""Resting: how long a consumer without work may sleep, and who wakes instead."""

from __future__ import annotations

import time
from typing import NamedTuple

from delayq.calls import Steps
from delayq.errors import DelayqError
from delayq.operations.core import Core


class Sleep(NamedTuple):
    """Until when an idle consumer may sleep, on the monotonic clock, in seconds; and whether something is due then."""

    until: float
    for_event: bool


def rest(core: Core, name: str, most_ms: int) -> Steps[Sleep]:
    """Ask, before a claim, for how long a consumer may sleep if that brings nothing; at most `most_ms`."""
    results = yield [scripts.rest(name, most_ms) for scripts in core.shards]
    return _sleep([result for result in results if not isinstance(result, DelayqError)], most_ms)


def watch(core: Core, name: str, most_ms: int) -> Steps[Sleep]:
    """Ask, at the end of an undisturbed sleep, for how long a consumer may sleep on; not at all: there is work.

    A shard that does not serve counts as work: the claim that follows tells what is wrong.
    """
    results = yield [scripts.watch(name, most_ms) for scripts in core.shards]
    return _sleep([0 if isinstance(result, DelayqError) else result for result in results], most_ms)


def _sleep(micros: list[int], most_ms: int) -> Sleep:
    least = min(micros, default=most_ms * 1000)
    return Sleep(time.monotonic() + least / 1_000_000, least < most_ms * 1000)


def pass_on(core: Core, name: str) -> Steps[None]:
    """Ring for the others: the caller has a token that it cannot use, or has promised to be awake and will not be."""
    yield [call for scripts in core.shards for call in (scripts.rest(name, 1), scripts.ring())]
