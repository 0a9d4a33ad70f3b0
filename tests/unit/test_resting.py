"""How long an idle consumer sleeps, as the answers of the shards tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from delayq.calls import Steps
from delayq.errors import ServerUnreachable
from delayq.operations import resting
from delayq.operations.core import Core, Settings
from delayq.operations.resting import Sleep
from delayq.scripts import Rested

MOST_MS = 1000
NOTHING = Rested(MOST_MS * 1000, "")
ASK = pytest.mark.parametrize("ask", [resting.rest, resting.watch])


def with_shards(count: int) -> Core:
    core = Core("q", "p", count, Settings())
    core.shards = core.shards * count
    return core


def answered(
    ask: Callable[[Core, str, int], Steps[Sleep]], *answers: Any, after: float = 0.0
) -> tuple[float, float, Sleep]:
    """Return between which times it was asked, and the sleep that follows."""
    steps = ask(with_shards(len(answers)), "me", MOST_MS)
    before = time.monotonic()
    next(steps)
    asked = time.monotonic()
    time.sleep(after)
    with pytest.raises(StopIteration) as stop:
        steps.send(list(answers))
    return before, asked, stop.value.value


@ASK
def test_sleep_counts_from_the_question_so_that_the_claim_arrives_when_it_is_due(ask: Any) -> None:
    before, asked, sleep = answered(ask, Rested(500_000, "a"), after=0.05)
    assert before + 0.5 <= sleep.until <= asked + 0.5
    assert sleep.for_event
    assert sleep.for_message
    assert list(sleep.expected) == ["a"]


@ASK
def test_nothing_in_sight_is_no_event(ask: Any) -> None:
    *_, sleep = answered(ask, NOTHING)
    assert not sleep.for_event
    assert not sleep.for_message


@ASK
def test_end_of_a_lease_is_an_event_without_a_message(ask: Any) -> None:
    *_, sleep = answered(ask, Rested(1, ""))
    assert sleep.for_event
    assert not sleep.for_message


@ASK
def test_earliest_shard_decides_and_its_message_only_is_expected(ask: Any) -> None:
    _, asked, sleep = answered(ask, NOTHING, Rested(300_000, "b"), Rested(400_000, "c"), Rested(300_000, "d"))
    assert sleep.until <= asked + 0.3
    assert list(sleep.expected) == ["", "b", "", "d"]


def test_shard_that_does_not_serve_keeps_nobody_from_resting() -> None:
    *_, sleep = answered(resting.rest, ServerUnreachable("away"), Rested(300_000, "b"))
    assert list(sleep.expected) == ["", "b"]
    *_, sleep = answered(resting.rest, ServerUnreachable("away"))
    assert not sleep.for_event


def test_shard_that_does_not_serve_ends_the_watch() -> None:
    _, asked, sleep = answered(resting.watch, ServerUnreachable("away"), Rested(300_000, "b"))
    assert sleep.until <= asked
    assert not sleep.for_message
