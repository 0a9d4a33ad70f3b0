"""Several queues in one consumer: their weights, and whose turn it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from delayq.errors import InvalidInput
from delayq.model.validation import MAX_WEIGHT

Q = TypeVar("Q")


def weighed(queues: object, strict: bool, kind: type[Q]) -> list[tuple[Q, int]]:
    """Return the queues given to a consumer, each with its weight: 1 to 1000, by default 1.

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
    """Raise InvalidInput if `weight` is not a whole number from 1 to 1000."""
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MAX_WEIGHT:
        raise InvalidInput(f"{what} is {weight!r}: give a whole number from 1 to {MAX_WEIGHT}")


class WeightedFairScheduler:
    """Decides whose turn it is: by weight, evenly spread, or by order.

    While the participants stay the same, one with a share s of the weights has had s of the turns at any time, to
    within less than one turn, and exactly s of every W turns from the first on, where W is the sum of the weights. At
    each turn, each participant is credited its weight, and the one whose turn it is pays W. Of those that the turn
    would not put a whole turn ahead, it goes to the one that would otherwise be the first to fall a whole turn behind.
    This is a fair schedule as defined by Baruah, Cohen, Plaxton and Varvel, Proportionate progress (1996), on one
    resource.

    Args:
        weights: of the participants, which are identified by their position in it.
        strict: the first in the order always comes first; weights are ignored.
    """

    def __init__(self, weights: Sequence[int], strict: bool = False) -> None:
        self._weights = weights
        self._strict = strict
        self._credits = [0] * len(weights)

    def next(self, ready: Collection[int], absent: Collection[int] = ()) -> int:
        """Return whose turn it is.

        Args:
            ready: the participants that can take it, one or more.
            absent: participants that must miss this turn; they get it back later, up to a whole round.
        """
        if self._strict:
            return min(ready)
        present = {*ready, *absent}
        total = sum(self._weights[each] for each in present)
        for each, credit in enumerate(self._credits):  # idle ones get no credit for it
            most = total * self._weights[each] if each in absent else credit + total
            self._credits[each] = min(credit + self._weights[each], most) if each in present else 0
        owed, weights = self._credits, self._weights
        chosen = min(ready, key=lambda each: (owed[each] <= 0, (total - owed[each]) / weights[each], each))
        owed[chosen] = max(owed[chosen] - total, -total * weights[chosen])
        return chosen
