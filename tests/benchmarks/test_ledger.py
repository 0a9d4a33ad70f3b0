"""The cost of a ledger is measured with and without one in turn, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import ledger
from benchmarks.server import BenchServer
from delayq import Queue


@pytest.mark.full
def test_queue_is_measured_with_a_ledger_and_without_in_turn():
    said: list[str] = []
    with BenchServer() as server:
        found = ledger.rates(server, size=20, runs=2, messages=1000, say=said.append)
        assert server.client.keys("*") == []
    assert list(found) == list(ledger.TITLES)
    for pair in found.values():
        assert (len(pair["per_second"]["samples"]), len(pair["bare_per_second"]["samples"])) == (2, 3)
        assert pair["redis_us"]["with"] > 0
        assert pair["redis_us"]["without"] > 0
    assert [line.split(",")[0] for line in said] == [title.split(",")[0] for title in ledger.TITLES.values()]


def test_missing_ledger_makes_the_figures_void(monkeypatch: pytest.MonkeyPatch):
    def configure(*_: Any, **__: Any) -> None:
        """Store nothing."""

    monkeypatch.setattr(Queue, "configure", configure)
    with BenchServer() as server, pytest.raises(RuntimeError, match="no ledger was kept"):
        ledger.rates(server, size=20, runs=1, messages=1000, say=lambda _: None)
