"""How long an idle consumer sleeps, as the answers of the shards tell."""

from __future__ import annotations

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


class Now:
    """The clock of the consumer."""

    def __init__(self) -> None:
        self.seconds = 1000.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    now = Now()
    monkeypatch.setattr("delayq.operations.resting.time.monotonic", lambda: now.seconds)
    return now


def answered(ask: Callable[[Core, str, int], Steps[Sleep]], *answers: Any, now: Now | None = None) -> Sleep:
    """Return the sleep that follows when the answers come, a minute after the question by a clock that is set."""
    steps = ask(with_shards(len(answers)), "me", MOST_MS)
    next(steps)
    if now:
        now.seconds += 60
    with pytest.raises(StopIteration) as stop:
        steps.send(list(answers))
    sleep: Sleep = stop.value.value
    return sleep


@ASK
def test_sleep_counts_from_the_question_so_that_the_claim_arrives_when_it_is_due(ask: Any, now: Now) -> None:
    sleep = answered(ask, Rested(500_000, "a"), now=now)
    assert sleep.until == 1000.5
    assert sleep.for_event
    assert sleep.for_message
    assert list(sleep.expected) == ["a"]


@ASK
def test_nothing_in_sight_is_no_event(ask: Any) -> None:
    sleep = answered(ask, NOTHING)
    assert not sleep.for_event
    assert not sleep.for_message


@ASK
def test_end_of_a_lease_is_an_event_without_a_message(ask: Any) -> None:
    sleep = answered(ask, Rested(1, ""))
    assert sleep.for_event
    assert not sleep.for_message


@ASK
def test_earliest_shard_decides_and_its_message_only_is_expected(ask: Any, now: Now) -> None:
    sleep = answered(ask, NOTHING, Rested(300_000, "b"), Rested(400_000, "c"), Rested(300_000, "d"), now=now)
    assert sleep.until == pytest.approx(1000.3)
    assert list(sleep.expected) == ["", "b", "", "d"]


def test_shard_that_does_not_serve_keeps_nobody_from_resting() -> None:
    sleep = answered(resting.rest, ServerUnreachable("away"), Rested(300_000, "b"))
    assert list(sleep.expected) == ["", "b"]
    sleep = answered(resting.rest, ServerUnreachable("away"))
    assert not sleep.for_event


def test_shard_that_does_not_serve_ends_the_watch(now: Now) -> None:
    sleep = answered(resting.watch, ServerUnreachable("away"), Rested(300_000, "b"), now=now)
    assert sleep.until == 1000.0
    assert not sleep.for_message
