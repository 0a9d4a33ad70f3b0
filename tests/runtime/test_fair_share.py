"""Which queue is next: from the first turn on, each is always within one turn of its exact share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import Queue
from delayq.errors import InvalidInput
from delayq.runtime.fair_share import WeightedFairScheduler, weighed


def turn(rota: WeightedFairScheduler, ready: Collection[int], expected: Collection[int] = ()) -> int:
    """Return whose turn it is, of up to 12 participants."""
    present = rota.ready | rota.expected
    if (rota.ready, rota.expected) == tuple(sum(1 << each for each in state) for state in (ready, expected)):
        return rota.next()
    for each in {*ready, *expected, *(each for each in range(12) if present >> each & 1)}:
        rota.note(each, each in ready, each in expected)
    return rota.next()


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_each_queue_is_always_within_one_turn_of_its_share(weights: list[int]):
    rota, everybody = WeightedFairScheduler(weights), range(len(weights))
    counts: Counter[int] = Counter()
    for turns in range(1, 400):
        counts[turn(rota, everybody)] += 1
        for each, weight in enumerate(weights):
            assert abs(counts[each] * sum(weights) - turns * weight) < sum(weights)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 3))
def test_shares_are_exact_at_the_end_of_each_round(weights: list[int], rounds: int):
    rota = WeightedFairScheduler(weights)
    counts = Counter(turn(rota, range(len(weights))) for _ in range(rounds * sum(weights)))
    assert [counts[each] for each in range(len(weights))] == [rounds * weight for weight in weights]


def test_turns_are_spread_and_not_in_a_row():
    rota = WeightedFairScheduler([5, 1, 1])
    assert "".join("abc"[turn(rota, range(3))] for _ in range(14)).count("aaaaa") == 0


def test_queue_that_is_not_ready_is_skipped_and_not_compensated_later():
    rota = WeightedFairScheduler([1, 1])
    assert [turn(rota, [0]) for _ in range(100)] == [0] * 100
    assert Counter(turn(rota, [0, 1]) for _ in range(10)) == {0: 5, 1: 5}


def test_absent_queue_makes_up_at_most_a_round_of_turns():
    rota = WeightedFairScheduler([1, 5])
    assert [turn(rota, [0], expected=[1]) for _ in range(100)] == [0] * 100
    owed = [turn(rota, [0, 1]) for _ in range(60)]
    assert owed[:5] == [1] * 5
    assert 50 <= owed.count(1) <= 50 + 6  # a round is six turns


@pytest.mark.parametrize("ready", [[0, 1, 2], [2, 1], [2]])
def test_strict_order_picks_the_first_ready_queue(ready: list[int]):
    rota = WeightedFairScheduler([1, 1, 1], strict=True)
    assert [turn(rota, ready) for _ in range(10)] == [min(ready)] * 10


@pytest.mark.parametrize("strict", [False, True])
def test_queues_in_a_set_are_refused(strict: bool):
    with pytest.raises(InvalidInput, match="a set of queues has no order: give them in a list"):
        weighed({Queue("a"), Queue("b")}, strict, Queue)
