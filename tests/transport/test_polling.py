from collections.abc import Callable

import pytest
import redis

from delayq.transport import polling
from delayq.transport.polling import PollBudget, budget_of

PAUSE = 0.00002  # between two calls


def calls(takes: Callable[[int], float], count: int = 20_000, pause: float = PAUSE) -> tuple[float, float]:
    """Make calls whose replies take so long; return the shares of calls that polled, and of time polled in vain."""
    budget, now, polled, vain = PollBudget(), 1000.0, 0, 0.0
    began = now
    for number in range(count):
        seconds = takes(number)
        if budget.allows(now):
            polled += 1
            in_time = seconds < polling.SECONDS
            budget.note(in_time)
            vain += 0.0 if in_time else polling.SECONDS
        now += seconds + pause
    return polled / count, vain / (now - began)


@pytest.mark.parametrize("seconds", [0.00003, 0.00012, 0.00018])
def test_calls_to_a_server_that_answers_in_time_poll(seconds: float):
    assert calls(lambda _: seconds) == (1.0, 0.0)


def test_one_slow_call_in_thirty_does_not_keep_the_others_from_polling():
    polled, vain = calls(lambda number: 0.0001 if number % 30 else 0.002)
    assert polled == 1.0
    assert vain < 0.05


@pytest.mark.parametrize("seconds", [0.00025, 0.001, 0.05, 1.0])
@pytest.mark.parametrize("pause", [0.0, 0.01, 3.0])
def test_calls_across_a_network_poll_for_a_small_share_of_the_time(seconds: float, pause: float):
    _, vain = calls(lambda _: seconds, pause=pause)
    assert vain < 1 / 200


def test_calls_poll_again_soon_after_the_server_was_slow():
    budget, now = PollBudget(), 1000.0
    while budget.allows(now):
        budget.note(in_time=False)
        now += 0.01
    assert not budget.allows(now)
    assert budget.allows(now + 0.06)
    budget.note(in_time=True)
    assert budget.allows(now + 0.06)


def test_queues_on_one_server_share_a_budget():
    """With one for each queue, 200 queues of a consumer would poll in vain most of the time."""
    first, second, other = (
        redis.ConnectionPool.from_url(f"redis://127.0.0.1:{port}/{number}") for number, port in enumerate((1, 1, 2))
    )
    budget = budget_of(first)
    assert budget_of(second) is budget
    assert budget_of(other) is not budget
