from __future__ import annotations

import pytest

from delayq.model.explanation import Standing
from tests.harness.lua.raw import NOW

NOTHING = Standing(NOW, None, 0, 0, None, None, None)


def test_new_queue_gives_no_reason(queue):
    assert queue.why("a") == NOTHING
    assert queue.state() == {}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_messages_due_earlier_are_counted_wherever_they_wait(queue, state):
    queue.given(pending={"p": NOW - 3}, ready={"r": NOW - 4}, retry={"t": NOW - 2})
    queue.given(**{state: {"a": NOW - 1, "same": NOW - 1, "later": NOW}})
    assert queue.why("a") == NOTHING._replace(earlier=3)


def test_message_that_does_not_wait_is_behind_no_other(queue):
    queue.given(ready={"r": NOW - 4}, unack={"u": NOW + 1, "v": NOW + 2}, dead={"d": NOW})
    assert queue.why("u") == NOTHING._replace(running=2)
    assert queue.why("d") == NOTHING._replace(running=2)


def test_pause_is_reported_instead_of_limits(queue):
    queue.given(ready={"a": NOW}, meta={"paused": NOW - 5, "concurrency": 1}, unack={"u": NOW + 1})
    assert queue.why("a") == NOTHING._replace(paused_ms=NOW - 5, running=1)


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("left", "expected"), [(9, {"paused_ms": NOW - 5, "paused_until_ms": NOW + 9}), (0, {})])
def test_timed_pause_is_reported_until_it_ends(queue, left, expected):
    queue.given(ready={"a": NOW}, meta={"paused": NOW - 5, "paused_until": NOW + left})
    assert queue.why("a") == NOTHING._replace(**expected)


def test_rate_reports_when_the_next_message_can_go(queue):
    queue.given(ready={"a": NOW}, meta={"rate": 2, "period_ms": 1000})
    queue.given(rate={"1": (NOW - 700) * 1000, "2": (NOW - 200) * 1000})
    assert queue.why("a") == NOTHING._replace(free=0, opens_ms=NOW + 300)


def test_rate_reports_how_many_more_can_go(queue):
    queue.given(ready={"a": NOW}, meta={"rate": 5, "period_ms": 1000}, rate={"1": (NOW - 700) * 1000})
    assert queue.why("a").free == 4


def test_concurrency_limit_reports_no_time(queue):
    queue.given(ready={"a": NOW}, meta={"concurrency": 2}, unack={"u": NOW + 1, "v": NOW + 2})
    assert queue.why("a") == NOTHING._replace(running=2, free=0)


def test_wait_for_its_key_is_reported_with_the_original_due_time(queue):
    queue.given(pending={"a": NOW + 60_000}, parked={"a": f"{NOW + 60_000} {NOW - 9}"})
    assert queue.why("a") == NOTHING._replace(parked=(NOW + 60_000, NOW - 9))


def test_unreadable_wait_is_ignored(queue):
    queue.given(pending={"a": NOW}, parked={"a": "soon"})
    assert queue.why("a") == NOTHING
