"""The measures of topics do everything they count, and leave nothing behind."""

from __future__ import annotations

import pytest

from benchmarks import topics
from benchmarks.server import BenchServer
from delayq.topic_group import Group


@pytest.mark.full
def test_topics_are_measured_in_turn_with_plain_commands():
    said: list[str] = []
    with BenchServer() as server:
        found = topics.rates(server, size=20, runs=2, records=1200, say=said.append)
        assert server.client.xlen("delayq:{bench}:topic") == 0
        assert server.client.keys("raw-*") == []
    assert list(found) == list(topics.TITLES)
    for pair in found.values():
        assert (len(pair["per_second"]["samples"]), len(pair["bare_per_second"]["samples"])) == (2, 3)
        assert pair["ratio"] > 0
    assert [line.split(":")[0] for line in said] == list(topics.TITLES.values())


def test_records_that_are_not_all_acked_make_the_figures_void(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Group, "ack", lambda *_: 0)
    with BenchServer() as server, pytest.raises(RuntimeError, match="1200 records were published, 0 acked"):
        topics.rates(server, size=20, runs=1, records=1200, say=lambda _: None)
