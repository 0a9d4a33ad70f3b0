"""How often the dashboard looks at a server."""

from __future__ import annotations

import pytest

from delayq.web.poller import rest
from delayq.web.servers import patience


def test_quick_looks_come_at_the_interval():
    assert rest(0.01, 2) == 2


def test_looks_that_take_longer_are_followed_by_four_times_as_much_rest():
    assert rest(0.6, 2) == pytest.approx(2.4)


@pytest.mark.parametrize("interval", [0.5, 2.0, 30.0])
@pytest.mark.parametrize("took", [0.0, 0.5, 1.0, 2.0, 3.0, 3.9])
def test_no_page_loses_its_patience_with_a_server_that_is_slow(took: float, interval: float):
    assert rest(took, interval) + took < patience(interval)


def test_look_that_takes_longer_than_the_patience_is_followed_at_once():
    assert rest(6, 2) == 0
