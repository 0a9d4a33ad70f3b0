from __future__ import annotations

import pytest

from delayq.model.explanation import Standing
from tests.harness.lua.raw import NOW

NOTHING = Standing(NOW, None, 0, 0, None, None, None)


def test_queue_that_knows_nothing_has_nothing_against_a_message(queue):
    assert queue.why("a") == NOTHING
    assert queue.state() == {}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_messages_that_are_due_earlier_are_counted_wherever_they_wait(queue, state):
    queue.given(pending={"p": NOW - 3}, ready={"r": NOW - 4}, retry={"t": NOW - 2})
    queue.given(**{state: {"a": NOW - 1, "same": NOW - 1, "later": NOW}})
    assert queue.why("a") == NOTHING._replace(earlier=3)


def test_message_that_does_not_wait_is_behind_nobody(queue):
    queue.given(ready={"r": NOW - 4}, unack={"u": NOW + 1, "v": NOW + 2}, dead={"d": NOW})
    assert queue.why("u") == NOTHING._replace(running=2)
    assert queue.why("d") == NOTHING._replace(running=2)


def test_pause_is_told_and_no_limit_counts_then(queue):
    queue.given(ready={"a": NOW}, meta={"paused": NOW - 5, "concurrency": 1}, unack={"u": NOW + 1})
    assert queue.why("a") == NOTHING._replace(paused_ms=NOW - 5, running=1)


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("left", "told"), [(9, {"paused_ms": NOW - 5, "paused_until_ms": NOW + 9}), (0, {})])
def test_pause_for_a_time_is_told_until_it_is_over(queue, left, told):
    queue.given(ready={"a": NOW}, meta={"paused": NOW - 5, "paused_until": NOW + left})
    assert queue.why("a") == NOTHING._replace(**told)


def test_rate_tells_when_the_next_one_goes(queue):
    queue.given(ready={"a": NOW}, meta={"rate": 2, "period_ms": 1000})
    queue.given(rate={"1": (NOW - 700) * 1000, "2": (NOW - 200) * 1000})
    assert queue.why("a") == NOTHING._replace(free=0, opens_ms=NOW + 300)


def test_rate_that_has_room_tells_how_much(queue):
    queue.given(ready={"a": NOW}, meta={"rate": 5, "period_ms": 1000}, rate={"1": (NOW - 700) * 1000})
    assert queue.why("a").free == 4


def test_limit_of_what_runs_has_no_time(queue):
    queue.given(ready={"a": NOW}, meta={"concurrency": 2}, unack={"u": NOW + 1, "v": NOW + 2})
    assert queue.why("a") == NOTHING._replace(running=2, free=0)


def test_wait_for_others_of_its_key_is_told_with_its_own_due_time(queue):
    queue.given(pending={"a": NOW + 60_000}, parked={"a": f"{NOW + 60_000} {NOW - 9}"})
    assert queue.why("a") == NOTHING._replace(parked=(NOW + 60_000, NOW - 9))


def test_what_is_told_of_a_wait_and_makes_no_sense_is_passed_over(queue):
    queue.given(pending={"a": NOW}, parked={"a": "soon"})
    assert queue.why("a") == NOTHING
