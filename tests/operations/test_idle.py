"""How long an idle consumer sleeps, given the answers of the shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.errors import ServerUnreachable
from delayq.operations import idle
from delayq.operations.idle import SleepPlan
from delayq.operations.queue_context import QueueContext, Settings
from delayq.protocol.operation import Operation
from delayq.protocol.replies import SleepReply

MOST_MS = 1000
NOTHING = SleepReply(MOST_MS * 1000, "")
ASK = pytest.mark.parametrize("ask", [idle.plan_sleep, idle.poll_idle])


def with_shards(count: int) -> QueueContext:
    context = QueueContext("q", "p", count, Settings())
    context.shards = context.shards * count
    return context


class Now:
    """The clock of the consumer."""

    def __init__(self) -> None:
        self.seconds = 1000.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    now = Now()
    monkeypatch.setattr("delayq.operations.idle.time.monotonic", lambda: now.seconds)
    return now


def answered(
    ask: Callable[[QueueContext, str, int], Operation[SleepPlan]], *answers: Any, now: Now | None = None
) -> SleepPlan:
    """Return the sleep after these answers, which arrive a minute after the question by a fake clock."""
    steps = ask(with_shards(len(answers)), "me", MOST_MS)
    next(steps)
    if now:
        now.seconds += 60
    with pytest.raises(StopIteration) as stop:
        steps.send(list(answers))
    sleep: SleepPlan = stop.value.value
    return sleep


@ASK
def test_sleep_counts_from_the_question_so_that_the_claim_arrives_when_it_is_due(ask: Any, now: Now) -> None:
    sleep = answered(ask, SleepReply(500_000, "a"), now=now)
    assert sleep.until == 1000.5
    assert sleep.for_event
    assert sleep.for_message
    assert list(sleep.expected) == ["a"]


@ASK
def test_without_an_event_the_sleep_is_for_none(ask: Any) -> None:
    sleep = answered(ask, NOTHING)
    assert not sleep.for_event
    assert not sleep.for_message


@ASK
def test_end_of_a_lease_is_an_event_without_a_message(ask: Any) -> None:
    sleep = answered(ask, SleepReply(1, ""))
    assert sleep.for_event
    assert not sleep.for_message


@ASK
def test_earliest_shard_decides_and_only_its_message_is_expected(ask: Any, now: Now) -> None:
    sleep = answered(
        ask, NOTHING, SleepReply(300_000, "b"), SleepReply(400_000, "c"), SleepReply(300_000, "d"), now=now
    )
    assert sleep.until == pytest.approx(1000.3)
    assert list(sleep.expected) == ["", "b", "", "d"]


def test_unavailable_shard_does_not_prevent_sleep() -> None:
    sleep = answered(idle.plan_sleep, ServerUnreachable("away"), SleepReply(300_000, "b"))
    assert list(sleep.expected) == ["", "b"]
    sleep = answered(idle.plan_sleep, ServerUnreachable("away"))
    assert not sleep.for_event


def test_unavailable_shard_ends_the_watch(now: Now) -> None:
    sleep = answered(idle.poll_idle, ServerUnreachable("away"), SleepReply(300_000, "b"), now=now)
    assert sleep.until == 1000.0
    assert not sleep.for_message
