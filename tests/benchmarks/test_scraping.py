"""The cost of being scraped is measured with and without scrapes in turn, and all messages are handled."""

from __future__ import annotations

import pytest

from benchmarks import scraping
from benchmarks.server import BenchServer
from delayq import Consumer
from delayq.metrics.http_server import MetricsServer, Response


@pytest.mark.full
def test_consumer_is_measured_scraped_and_not_in_turn():
    said: list[str] = []
    with BenchServer() as server:
        found = scraping.rates(server, size=20, runs=2, messages=1000, say=said.append)["drain"]
        assert server.client.keys("*") == []
    assert (len(found["per_second"]["samples"]), len(found["bare_per_second"]["samples"])) == (2, 3)
    assert len(found["scrapes"]) == 2
    assert said[0].startswith("drain, scraped ")


def test_scraper_that_is_stopped_before_it_starts_ends():
    routes = {"/metrics": lambda _: Response(200, b"")}
    with MetricsServer("127.0.0.1", 0, routes) as served, scraping.scraping() as scraper:
        scraper.begin(f"http://127.0.0.1:{served.port}/metrics")  # while its process is still starting
        assert scraper.end() >= 1


def test_run_with_a_wrong_number_of_messages_makes_the_figures_void(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Consumer, "drain", lambda _: 999)
    with BenchServer() as server, pytest.raises(RuntimeError, match="1000 messages were due, and 999 were handled"):
        scraping.rates(server, size=20, runs=1, messages=1000, say=lambda _: None)
