"""How often the dashboard reads a server."""

from __future__ import annotations

import pytest

from delayq.web.poller import rest
from delayq.web.servers import patience


def test_quick_looks_come_at_the_interval():
    assert rest(0.01, 2) == 2


def test_longer_looks_are_followed_by_four_times_as_much_rest():
    assert rest(0.6, 2) == pytest.approx(2.4)


@pytest.mark.parametrize("interval", [0.5, 2.0, 30.0])
@pytest.mark.parametrize("took", [0.0, 0.5, 1.0, 2.0, 3.0, 3.9])
def test_slow_server_is_not_reported_as_silent(took: float, interval: float):
    assert rest(took, interval) + took < patience(interval)


def test_look_longer_than_the_patience_is_followed_by_another_at_once():
    assert rest(6, 2) == 0
