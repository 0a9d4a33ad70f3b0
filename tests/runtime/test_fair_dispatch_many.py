"""A dispatcher of many queues: its work for a message, counted in operations, and that no queue sleeps in vain."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq.runtime import fair_dispatch, fair_share
from delayq.runtime.fair_dispatch import Counted, FairDispatcher, QueueLane

COUNTED = {str(Path(str(module.__file__))) for module in (fair_dispatch, fair_share)}
FEW, MANY = 25, 100


def operations(act: Callable[[], object]) -> int:
    """Return how many bytecode instructions of the dispatcher and its scheduler a function runs."""
    count = 0

    def local(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return local

    def enter(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ARG001
        if frame.f_code.co_filename not in COUNTED:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


class Fleet:
    """A dispatcher whose lanes do what engines do, without threads: a lane that is woken looks for messages.

    Args:
        due: of each lane, how many messages are due.
        seconds: how long a handler takes.
    """

    def __init__(self, due: Sequence[int], seconds: float | None, strict: bool = False, burst: bool = False) -> None:
        self.ended = 0
        self.handled = 0
        self.due = list(due)
        self._seconds = seconds
        self._running: deque[QueueLane[Any]] = deque()
        self._woken: dict[int, None] = {}
        weights = [1] * len(due) if strict else [1 + number % 3 for number in range(len(due))]
        self.gate = FairDispatcher(8, weights, strict, burst, None, self._end)
        for lane in self.gate.lanes:
            lane.start = lambda _, lane=lane: self._running.append(lane)  # type: ignore[misc]
            lane.wake = lambda number=lane.number: self._woken.setdefault(number)  # type: ignore[misc]
            self._woken[lane.number] = None
        self.settle()

    def settle(self) -> None:
        """Let the lanes look that are woken, and those that they wake, but no more often than an engine would."""
        for _ in range(20 * len(self.due)):
            if not self._woken:
                return
            self._look(next(iter(self._woken)))

    def handle(self, count: int) -> None:
        """Let handlers end one after the other; each settles its message and lets its lane look again."""
        for _ in range(count):
            lane = self._running.popleft()
            lane.ended()
            self.handled += 1
            self._look(lane.number, handled=1)
            for _ in range(4):  # the others look meanwhile
                if self._woken:
                    self._look(next(iter(self._woken)))

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def send(self, number: int, count: int) -> None:
        """Let messages become due; their queue's bell wakes its lane, unless it does not listen as it had no room."""
        self.due[number] += count
        if not self.gate.lanes[number].is_refused:
            self._woken.setdefault(number)

    def _look(self, number: int, handled: int = 0) -> None:
        self._woken.pop(number, None)
        lane = self.gate.lanes[number]
        self.due[number] += len(lane.returned(0))
        room = lane.room(self._seconds)
        claimed = min(room, self.due[number])
        self.due[number] -= claimed
        if claimed:
            lane.bring([None] * claimed)
        lane.answered(claimed, handled, settled=bool(handled))
        if room and not claimed and not lane.held:
            lane.rests()

    def _end(self) -> None:
        self.ended += 1


def backlogs(lanes: int) -> list[int]:
    return [1000] * lanes


def one_backlog(lanes: int) -> list[int]:
    return [0] * (lanes - 1) + [1000]


def messages_now_and_then(lanes: int) -> list[int]:
    return [3] * lanes


@pytest.mark.parametrize("seconds", [None, 1.0, 0.01, 0.0001], ids=["unknown", "slow", "plain", "quick"])
@pytest.mark.parametrize("due", [backlogs, one_backlog, messages_now_and_then])
@pytest.mark.parametrize("order", ["weights", "strict", "burst"])
def test_work_for_a_message_does_not_grow_with_the_number_of_queues(
    order: str, due: Callable[[int], list[int]], seconds: float | None
):
    costs = []
    for lanes in (FEW, MANY):
        fleet = Fleet(due(lanes), seconds, strict=order == "strict", burst=order == "burst")
        fleet.handle(5)
        costs.append(operations(lambda fleet=fleet: fleet.handle(40)))  # type: ignore[misc]
    assert costs[1] <= 2 * costs[0], costs


@pytest.mark.parametrize("strict", [False, True], ids=["weights", "strict"])
@given(due=st.lists(st.integers(0, 4), min_size=2, max_size=9), steps=st.lists(st.tuples(*[st.integers(0, 9)] * 2)))
@example(
    due=[3, 1, 2, 0, 4, 4, 1, 3, 2],
    steps=[*zip([9, 9, 2, 1, 9, 2, 0, 9, 9, 7, 6, 6, 6], [7, 4, 8, 9, 9, 9, 9, 2, 8, 3, 3, 9, 3], strict=True)],
)
@example(due=[0, 0, 1, 4, 4], steps=[(0, 6), (4, 6), (0, 0)])
def test_no_queue_waits_for_room_that_there_is(strict: bool, due: list[int], steps: list[tuple[int, int]]):
    """Whatever comes and ends: when all woken lanes have looked, none sleeps that has room, and the sums are right."""
    for seconds in (None, 1.0, 0.001):
        fleet = Fleet(due, seconds, strict)
        gate, lanes = fleet.gate, fleet.gate.lanes
        for number, kind in steps:
            lane = lanes[number % len(lanes)]
            if kind < 5 and fleet.is_busy:
                fleet.handle(1)
            elif kind == 5:
                lane.answered(0, 0, settled=False, failed=True)
            else:
                fleet.send(lane.number, kind - 5)
            fleet.settle()
            assert [each.number for each in lanes if each.is_refused and gate.room(each)[0]] == []
            busy = sum(each.running for each in lanes)
            assert busy == 8 or not any(each.waiting for each in lanes)
            for each in lanes:
                held = Counted(each.running, 0 if strict else each.asked, each.weight if each.is_backlogged else 0)
                assert each.counted == held


def test_burst_ends_once_no_queue_finds_anything():
    fleet = Fleet([3] * 20, 0.01, burst=True)
    while fleet.is_busy:
        assert fleet.ended == 0
        fleet.handle(1)
    fleet.settle()
    assert (fleet.handled, fleet.ended > 0) == (60, True)


def test_burst_lets_queues_look_again_after_the_last_message():
    fleet = Fleet([1, *[0] * 19], None, burst=True)
    assert fleet.ended == 0
    fleet.due[7] = 1  # sent by the handler, whose message has not woken anyone
    fleet.handle(1)
    fleet.settle()
    assert fleet.ended == 0
    fleet.handle(1)
    fleet.settle()
    assert (fleet.handled, fleet.ended > 0) == (2, True)
