"""The difference between the clocks of a database and a server, from round trips that take time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from delayq.outbox.clock_difference import ClockDifference

AHEAD = 5000


class Clocks:
    """Two clocks, and round trips that take as many milliseconds as the test says, half of it on each way.

    Args:
        trips: ms; those after the last take 2.
    """

    def __init__(self, trips: Iterable[int] = ()) -> None:
        self.now, self.ahead, self.trips = 0, AHEAD, list(trips)
        self.asked = self._took = 0

    def here(self) -> int:
        return self.now

    def there(self) -> int:
        return self.there_at_once() + self._took // 2

    def there_at_once(self) -> int:
        """The other clock is read at the beginning of the round trip: half of the trip is the error."""
        self.asked += 1
        self._took = self.trips.pop(0) if self.trips else 2
        seen = self.now + self.ahead
        self.now += self._took
        return seen


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed."""
    passed = [0.0]
    monkeypatch.setattr("delayq.outbox.clock_difference.time.monotonic", lambda: passed[0])
    return passed


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(("trips", "asked"), [([2], 1), ([1000, 3], 2), ([900, 800, 30, 700, 600], 5)])
def test_shortest_round_trip_counts(trips: list[int], asked: int):
    clocks = Clocks(trips)
    found = ClockDifference(clocks.here).ms(clocks.there_at_once)
    assert abs(found - AHEAD) <= min(trips) / 2
    assert clocks.asked == asked


def test_difference_is_measured_again_after_a_minute(later: list[float]):
    clocks = Clocks()
    difference = ClockDifference(clocks.here)
    for seconds, asked in (0, 1), (59, 1), (61, 2), (100, 2), (122, 3):
        later[0] = seconds
        assert difference.ms(clocks.there) == AHEAD
        assert clocks.asked == asked


def test_difference_stays_the_same_within_its_error(later: list[float]):
    """Otherwise two messages of a transaction with the same delay might change their places."""
    clocks = Clocks()
    difference = ClockDifference(clocks.here)
    assert difference.ms(clocks.there) == AHEAD
    for n, noise in enumerate((1, -2, 3, -1), 1):
        later[0], clocks.ahead = 61.0 * n, AHEAD + noise
        assert difference.ms(clocks.there) == AHEAD


@pytest.mark.parametrize("step", [10, -10, 3_600_000])
def test_clock_that_was_set_is_noticed_within_a_minute(later: list[float], step: int):
    clocks = Clocks()
    difference = ClockDifference(clocks.here)
    difference.ms(clocks.there)
    clocks.ahead += step
    later[0] = 61
    assert difference.ms(clocks.there) == AHEAD + step


def test_better_result_replaces_a_poor_one(later: list[float]):
    clocks = Clocks([400] * 5)
    difference = ClockDifference(clocks.here)
    assert difference.ms(clocks.there_at_once) == AHEAD - 200
    later[0] = 61
    assert difference.ms(clocks.there) == AHEAD


def test_poor_result_does_not_replace_a_better_one(later: list[float]):
    clocks = Clocks()
    difference = ClockDifference(clocks.here)
    difference.ms(clocks.there)
    later[0], clocks.trips = 61, [400] * 5
    assert difference.ms(clocks.there_at_once) == AHEAD
