"""Outcomes that wait for an unavailable shard."""

from __future__ import annotations

import math

import pytest

from delayq.model import outcome as oc
from delayq.runtime.shard_backlog import FIRST_PAUSE, LONGEST_PAUSE, ShardBacklog


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr("delayq.runtime.shard_backlog.time.monotonic", lambda: time[0])
    return time


def test_each_shard_has_its_own_pause_which_grows_until_a_try_succeeds(now: list[float]) -> None:
    backlog: ShardBacklog[str] = ShardBacklog(lambda message: message[0])
    assert (backlog.due(), backlog.left(), len(backlog)) == ([], math.inf, 0)
    backlog.add("a1", oc.DONE)
    assert (backlog.due(), len(backlog)) == ([], 1)
    assert backlog.left() == pytest.approx(FIRST_PAUSE)
    now[0] += FIRST_PAUSE
    assert backlog.due() == [("a1", oc.DONE)]
    backlog.add("a1", oc.DONE)
    backlog.add("b1", oc.DONE)
    now[0] += FIRST_PAUSE
    assert backlog.due() == [("b1", oc.DONE)]
    for _ in range(9):
        now[0] += LONGEST_PAUSE
        assert backlog.due() == [("a1", oc.DONE)]
        backlog.add("a1", oc.DONE)
    assert backlog.left() == pytest.approx(LONGEST_PAUSE)
    assert backlog.waiting() == [("a1", oc.DONE)]
    now[0] += LONGEST_PAUSE
    backlog.due()
    now[0] += 2 * LONGEST_PAUSE
    assert backlog.due() == []  # it was settled
    backlog.add("a2", oc.DONE)
    assert backlog.left() == pytest.approx(FIRST_PAUSE)


def test_all_outcomes_can_be_taken_at_the_end() -> None:
    backlog: ShardBacklog[str] = ShardBacklog(lambda message: message[0])
    backlog.add("a1", oc.DONE)
    backlog.add("b1", oc.DONE)
    assert backlog.all() == [("a1", oc.DONE), ("b1", oc.DONE)]
    assert len(backlog) == 0
