from __future__ import annotations

from delayq.protocol.replies import DueCounts
from tests.harness.lua.raw import NOW, SERVER_TIME


def test_messages_are_counted_in_the_span_in_which_they_come_due(queue):
    queue.given(
        pending={"a": NOW, "b": NOW + 9, "c": NOW + 10, "d": NOW + 29, "e": NOW + 30},
        retry={"f": NOW + 10, "g": NOW + 19, "h": NOW + 20},
    )
    assert queue.upcoming(10, 3) == DueCounts(NOW, [2, 1, 1], [0, 2, 1])


def test_due_messages_count_in_the_first_span(queue):
    queue.given(pending={"a": 0, "b": NOW - 1}, retry={"c": NOW - 1})
    assert queue.upcoming(10, 2) == DueCounts(NOW, [2, 0], [1, 0])


def test_only_messages_that_wait_for_their_time_are_counted(queue):
    queue.given(ready={"a": NOW + 1}, unack={"b": NOW + 1}, dead={"c": NOW + 1}, garbage={"d": NOW + 1})
    before = queue.state()
    assert queue.upcoming(10, 1) == DueCounts(NOW, [0], [0])
    assert queue.state() == before


def test_spans_reach_as_far_as_times_do(queue):
    queue.given(pending={"a": 253_402_300_799_999})
    assert queue.upcoming(253_402_300_799_999, 2) == DueCounts(NOW, [1, 0], [0, 0])


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(pending={"a": queue.server_ms() + 3_600_000})
    assert queue.upcoming(1_800_000, 4).pending in (
        [0, 0, 1, 0],
        [0, 1, 0, 0],
    )  # in the second one, if a millisecond has passed
