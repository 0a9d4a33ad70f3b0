"""How soon a consumer resumes is measured by what it was handed since, while the server serves."""

from __future__ import annotations

import pytest

from tests.harness.chaos.history import Event
from tests.harness.chaos.outages import INF, Outage, outages, worst_resume

WALL_MS = 1_700_000_000_000  # the time at second 0
ONE, OTHER = 11, 12  # consumers


def trouble(began: float, ended: float) -> list[Event]:
    return [Event("fault", began, 0), Event("recovered", ended, 0)]


def delivery(at: float, handed_out: float | None = None, pid: int = ONE) -> Event:
    handed_ms = WALL_MS + (at if handed_out is None else handed_out) * 1000
    return Event("delivered", at, pid, "m", ms=handed_ms, wall_ms=WALL_MS + at * 1000)


def test_only_faults_of_the_server_count_as_troubles():
    others = [Event("fault", 3, ONE), Event("recovered", 4, ONE)]
    assert outages([*trouble(1, 2), *others, Event("fault", 5, 0)]) == [Outage(1, 2), Outage(5, INF)]


@pytest.mark.parametrize(
    ("history", "seconds"),
    [
        ([delivery(1)], 0),  # no trouble
        ([delivery(1), *trouble(2, 4), delivery(4.5), delivery(9)], 0.5),
        ([*trouble(2, 4), delivery(4.5, handed_out=1.9), delivery(6)], 2),  # the consumer already had it
        ([*trouble(2, 4), delivery(4.5), *trouble(5, 6), delivery(9)], 3),
        ([*trouble(2, 4), *trouble(5, 8), delivery(10)], 3),  # from 4 to 5, and from 8 to 10
        ([*trouble(2, 4), *trouble(5, 8), delivery(7.5), delivery(8.2)], 1),  # the second trouble did not stop it
        ([delivery(1), *trouble(2, 4)], INF),
        ([*trouble(2, 4), delivery(4.5, pid=OTHER)], INF),
    ],
)
def test_resume_time_counts_from_the_end_of_a_trouble_while_the_server_serves(history: list[Event], seconds: float):
    assert worst_resume(sorted(history, key=lambda event: event.at), [ONE]) == pytest.approx(seconds, abs=1e-3)


def test_slowest_consumer_counts():
    history = [*trouble(2, 4), delivery(4.5), delivery(7, pid=OTHER)]
    assert worst_resume(history, [ONE, OTHER]) == pytest.approx(3, abs=1e-3)
