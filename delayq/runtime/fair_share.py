"""Several queues in one consumer: their weights, and whose turn it is."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from delayq.errors import InvalidInput
from delayq.model.validation import MAX_WEIGHT

Q = TypeVar("Q")


def weighed(queues: object, strict: bool, kind: type[Q]) -> list[tuple[Q, int]]:
    """Return the queues given to a consumer, each with its weight: 1 to 1,000, by default 1.

    Args:
        queues: one, several in a sequence, or several with their weights in a mapping.
        strict: their order is their priority.
        kind: the required type of each.

    Raises:
        InvalidInput: naming what is wrong.
    """
    if isinstance(queues, kind):
        return [(queues, 1)]
    if isinstance(queues, Mapping):
        if strict:
            raise InvalidInput("strict=True uses the order of the queues: give a list of them, without weights")
        pairs = list(queues.items())
    elif isinstance(queues, set | frozenset):
        raise InvalidInput("a set of queues has no order: give them in a list, or as a dict with their weights")
    elif isinstance(queues, Iterable) and not isinstance(queues, str | bytes):
        pairs = [(queue, 1) for queue in queues]
    else:
        pairs = [(queues, 1)]
    if not pairs:
        raise InvalidInput("a consumer needs a queue: give one, or several in a list or as a dict with their weights")
    known: list[Any] = []
    for queue, weight in pairs:
        if not isinstance(queue, kind):
            raise InvalidInput(f"expected a {kind.__module__.removesuffix('.queue')}.Queue, got {queue!r}")
        if queue in known:
            raise InvalidInput(f"{queue!r} is given twice: give it once, with a weight")
        known.append(queue)
        check_weight(weight, f"the weight of {queue!r}")
    return pairs


def check_weight(weight: object, what: str) -> None:
    """Raise InvalidInput if `weight` is not a whole number from 1 to 1,000."""
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MAX_WEIGHT:
        raise InvalidInput(f"{what} is {weight!r}: give a whole number from 1 to {MAX_WEIGHT:,}")


class WeightedFairScheduler:
    """Decides whose turn it is: by weight, evenly spread, or by order.

    While the participants stay the same, one with a share s of the weights has had s of the turns at any time, to
    within less than one turn, and exactly s of every W turns from the first on, where W is the sum of the weights.
    This is a fair schedule as defined by Baruah, Cohen, Plaxton and Varvel, Proportionate progress (1996), on one
    resource. It is kept in virtual time, as in Bennett and Zhang, WF2Q: worst-case fair weighted fair queueing (1996),
    so that a turn costs O(log n): a turn lasts 1/W, and a participant may have one in each 1/w. Of those whose time
    has begun, the turn goes to the one whose time ends first; if there are none, to the one whose time begins first.

    Args:
        weights: of the participants, which are identified by their position in it.
        strict: the first in the order always comes first; weights are ignored.

    Attributes:
        ready: the participants that can take a turn, as a set of bits.
        expected: those that will be ready soon, as they have a backlog. Without being ready, they miss their turns, and
            get them back later, up to a whole round. One that is neither is idle, and its credit or debt lapses.
    """

    def __init__(self, weights: Sequence[int], strict: bool = False) -> None:
        self.ready = self.expected = 0
        self._weights = weights
        self._strict = strict
        self._round = math.lcm(*weights) << 32  # of virtual time: all shares of it are exact
        self._total = 0  # of the weights of those that are not idle
        self._since = self._turns = 0  # when that changed, and turns since
        self._starts = [0] * len(weights)  # when the next turn of each may come
        self._queued: list[int | None] = [None] * len(weights)  # that time, if it is in a heap; other entries are old
        self._later: list[tuple[int, int]] = []  # a heap of starts, each with its participant
        self._begun: list[tuple[int, int, int]] = []  # a heap of deadlines, each with its participant and its start

    def note(self, number: int, is_ready: bool, is_expected: bool) -> None:
        """Note the state of a participant."""
        bit = 1 << number
        was_ready, was_present = self.ready & bit, (self.ready | self.expected) & bit
        self.ready = self.ready | bit if is_ready else self.ready & ~bit
        self.expected = self.expected | bit if is_expected else self.expected & ~bit
        if self._strict:
            return
        is_present = is_ready or is_expected
        if is_present != bool(was_present):
            self._since, self._turns = self._now(), 0
            self._total += self._weights[number] if is_present else -self._weights[number]
            self._starts[number] = self._since
        if is_ready and not was_ready:
            self._starts[number] = max(self._starts[number], self._now() - self._round)
            self._enter(number)

    def next(self) -> int:
        """Return whose turn it is; at least one participant is ready."""
        if self._strict:
            return lowest(self.ready)
        self._turns += 1
        now, later, begun = self._now(), self._later, self._begun
        while later and (later[0][0] < now or not self._holds(later[0][1], later[0][0])):
            start, number = heapq.heappop(later)
            if self._holds(number, start):
                heapq.heappush(begun, (start + self._round // self._weights[number], number, start))
        while begun and not self._holds(begun[0][1], begun[0][2]):
            heapq.heappop(begun)
        number = heapq.heappop(begun)[1] if begun else heapq.heappop(later)[1]
        self._starts[number] += self._round // self._weights[number]
        self._starts[number] = min(self._starts[number], now + self._round)
        self._enter(number)
        return number

    def _now(self) -> int:
        """Return the virtual time, rounded up: what is before it is before the exact time."""
        return self._since - (-self._turns * self._round // self._total if self._total else 0)

    def _enter(self, number: int) -> None:
        start = self._starts[number]
        if self._queued[number] != start:
            self._queued[number] = start
            heapq.heappush(self._later, (start, number))

    def _holds(self, number: int, start: int) -> bool:
        """Return whether the entry of a heap still holds; drop the participant's place if it is not ready."""
        if self._queued[number] != start:
            return False
        if not self.ready >> number & 1:
            self._queued[number] = None
            return False
        return True


def lowest(bits: int) -> int:
    """Return the lowest number in a set of bits, which is not empty."""
    return (bits & -bits).bit_length() - 1
