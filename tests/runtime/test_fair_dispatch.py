"""The dispatcher that the queues of a consumer share: how much each may claim, and what is handed back."""

from __future__ import annotations

from functools import partial
from typing import Any

from delayq.runtime.fair_dispatch import FairDispatcher


class Hall:
    """A dispatcher, and what it has started, in a list per lane."""

    def __init__(self, concurrency: int, *weights: int, strict: bool = False, most: int | None = None) -> None:
        self.ended = 0
        self.gate = FairDispatcher(concurrency, weights, strict, False, most, self._end)
        self.lanes = self.gate.lanes
        self.started: list[list[Any]] = [[] for _ in weights]
        self.woken = [0 for _ in weights]
        for number, lane in enumerate(self.lanes):
            lane.start = self.started[number].append
            lane.wake = partial(self._wake, number)

    def bring(self, number: int, count: int) -> None:
        """Let a lane claim, and give it `count` messages."""
        lane = self.lanes[number]
        lane.room(None)
        lane.bring(list(range(count)))
        lane.answered(count, 0, False)

    def has_none(self, number: int) -> None:
        """Let a lane claim in vain."""
        self.lanes[number].room(None)
        self.lanes[number].answered(0, 0, False)

    def _wake(self, number: int) -> None:
        self.woken[number] += 1

    def _end(self) -> None:
        self.ended += 1


def test_lone_lane_has_room_for_all():
    hall = Hall(8, 1, 1)
    hall.has_none(1)
    assert hall.lanes[0].room(None) == 8


def test_competing_lanes_have_room_by_weight_and_one_message_ahead():
    hall = Hall(12, 5, 1)
    assert [lane.room(None) for lane in hall.lanes] == [11, 3]


def test_lane_with_the_lowest_weight_has_room_for_at_least_one():
    hall = Hall(1, 1000, 1)
    hall.bring(0, 2)
    assert hall.lanes[1].room(None) == 1


def test_lanes_with_quick_handlers_fetch_more_ahead_by_weight():
    hall = Hall(1, 3, 1)
    hall.bring(0, 2)
    hall.bring(1, 1)
    assert [lane.room(0.001) for lane in hall.lanes] == [0.05 * 1000 * 3 // 4 - 1, 0.05 * 1000 // 4 - 1]


def test_running_claim_keeps_its_permits():
    hall = Hall(8, 1, 1)
    hall.has_none(1)
    assert hall.lanes[0].room(None) == 8
    assert hall.lanes[1].room(None) == 1  # the other lane may never answer


def test_lane_without_room_is_woken_when_it_has_room():
    hall = Hall(1, 1, 1)
    hall.bring(0, 2)
    hall.bring(1, 1)
    assert hall.lanes[1].room(None) == 0
    hall.lanes[0].ended()
    assert (hall.started, hall.woken[1]) == ([[0], [0]], 1)


def test_strict_priority_gives_no_room_after_a_lane_with_a_backlog():
    hall = Hall(4, 1, 1, 1, strict=True)
    hall.bring(0, hall.lanes[0].room(None))
    assert [lane.room(None) for lane in hall.lanes[1:]] == [0, 0]
    for _ in range(3):
        hall.lanes[0].ended()
    assert hall.woken[1] == 0
    hall.has_none(0)
    assert hall.woken[1] == 1
    assert hall.lanes[1].room(None) >= 2


def test_strict_priority_does_not_wait_for_an_idle_lane_to_answer():
    hall = Hall(4, 1, 1, strict=True)
    hall.has_none(0)
    assert hall.lanes[0].room(None) == 5
    assert hall.lanes[1].room(None) == 4


def test_strict_priority_does_not_wait_for_a_lane_whose_claim_failed():
    hall = Hall(4, 1, 1, strict=True)
    assert hall.lanes[0].room(None) == 5
    assert hall.lanes[1].room(None) == 0  # the first lane has not reported yet what it has
    hall.lanes[0].answered(0, 0, settled=False, failed=True)
    assert (hall.woken[1], hall.lanes[1].room(None)) == (1, 4)


def test_strict_priority_hands_back_messages_that_wait_behind_a_backlog():
    hall = Hall(2, 1, 1, strict=True)
    hall.has_none(0)
    hall.bring(1, 3)  # one more than there are permits
    hall.bring(0, hall.lanes[0].room(None))
    assert (hall.started[1], hall.lanes[1].handed_back == [2], hall.lanes[1].returned(0)) == ([0, 1], True, [2])


def test_messages_that_never_started_do_not_count():
    hall = Hall(1, 1, 1, most=1)
    hall.bring(0, 2)
    hall.lanes[0].ended()
    assert hall.started == [[0], []]
    assert hall.lanes[0].returned(unstarted=1) == []
    assert hall.started == [[0, 1], []]


def test_at_most_max_messages_start_and_the_run_ends_after_them():
    hall = Hall(8, 1, 1, most=3)
    for number in (0, 1):
        assert hall.lanes[number].room(None) <= 3
        hall.bring(number, 3)
    assert sum(map(len, hall.started)) == 3
    for handled in (2, 1):
        assert hall.ended == 0
        hall.lanes[0].answered(0, handled, settled=True)
    assert hall.ended == 1


def test_nothing_starts_after_it_is_closed():
    hall = Hall(8, 1, 1)
    hall.gate.is_closed = True
    hall.bring(0, 3)
    assert (hall.started[0], hall.lanes[0].withdraw()) == ([], [0, 1, 2])
