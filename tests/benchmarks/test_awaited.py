"""The measures of the async API do everything they count, and leave nothing behind."""

from __future__ import annotations

import pytest

from benchmarks import awaited, own
from benchmarks.server import BenchServer


@pytest.mark.full
def test_each_measure_is_taken_in_turn_with_the_bare_scripts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(awaited, "WAIT_SECONDS", 0.0001)
    said: list[str] = []
    with BenchServer() as server:
        found = own.awaiting(server, size=20, runs=1, messages=500, say=said.append)
        assert server.client.keys("*") == []
    assert list(found) == list(awaited.TITLES) == list(awaited.MEASURES)
    assert all(pair["per_second"]["median"] > 0 < pair["bare_per_second"]["median"] for pair in found.values())
    assert [line.split(":")[0] for line in said] == list(awaited.TITLES.values())


def test_missing_sends_make_the_figures_void(monkeypatch: pytest.MonkeyPatch):
    async def lazy(*_: object) -> float:
        return 1.0

    monkeypatch.setattr(awaited, "MEASURES", {"send_one": (lazy, False)})
    with BenchServer() as server, pytest.raises(RuntimeError, match="500 messages were expected"):
        own.awaiting(server, size=20, runs=1, messages=500, say=lambda _: None)
