"""The cost of a function as a task is measured in turn with a plain handler, and all messages are handled."""

from __future__ import annotations

import pytest

from benchmarks import functions
from benchmarks.server import BenchServer
from delayq import Consumer


@pytest.mark.full
def test_tasks_are_measured_in_turn_with_a_handler():
    said: list[str] = []
    with BenchServer() as server:
        found = functions.rates(server, size=20, runs=2, messages=1000, say=said.append)
    assert found.keys() == functions.TITLES.keys()
    for each in found.values():
        assert (len(each["per_second"]["samples"]), len(each["bare_per_second"]["samples"])) == (2, 3)
    assert said[1].startswith("drain, a task whose result is kept for an hour: ")


def test_run_whose_messages_or_results_are_missing_makes_the_figures_void(monkeypatch: pytest.MonkeyPatch):
    with BenchServer() as server, functions.drains(server) as measured:
        monkeypatch.setattr(Consumer, "drain", lambda consumer: consumer.run(max_messages=9))
        with pytest.raises(RuntimeError, match="9 of 10 messages were handled"):
            measured["tasks"].rate(10, "x")
        monkeypatch.setattr(Consumer, "drain", lambda _: 10 * server.client.flushall())
        with pytest.raises(RuntimeError, match="10 of 10 messages were handled, 0 keys kept"):
            measured["results"].rate(10, "x")
