"""What it costs a consumer to be scraped: delayq with and without a metrics port, in turn."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from delayq.cli.consume.monitor import routes

from benchmarks.own import opened
from benchmarks.paired.samples import PairedRates, alternate
from benchmarks.server import BenchServer
from delayq import Consumer, Queue
from delayq.metrics import Metrics, MetricsServer

# In its own process, like Prometheus, so that its CPU time does not count for the consumer. A line names the URL.
SCRAPER = """
import select, urllib.request
lines = open(0, "rb", buffering=0)  # a buffer could hold a line that select then waits for
url, count = "", 0
while True:
    if select.select([lines], [], [], 1.0)[0]:
        line = lines.readline().decode()
        if not line:
            break
        if not line.strip():
            print(count, flush=True)
        url, count = line.strip(), 0
    if url:
        urllib.request.urlopen(url).read()
        count += 1
"""


class Scraper:
    """Scrapes once a second while it has a URL."""

    def __init__(self) -> None:
        words = [sys.executable, "-c", SCRAPER]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def begin(self, url: str) -> None:
        """Scrape now, and then every second."""
        self._tell(url)

    def end(self) -> int:
        """Stop scraping; return the number of scrapes."""
        self._tell("")
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.communicate()


class Measure:
    """Drains a queue, scraped or not.

    Attributes:
        scrapes: the number of scrapes, one sample per run.
    """

    def __init__(self, queue: Queue, fill: Callable[[], None], scraper: Scraper, count: int) -> None:
        self._queue, self._fill, self._scraper, self._count = queue, fill, scraper, count
        self.scrapes: list[int] = []

    def with_port(self) -> float:
        """Return the messages per second of a consumer that is scraped."""
        metrics = Metrics([self._queue])
        with MetricsServer("127.0.0.1", 0, routes(metrics, lambda _: "")) as served:
            return self._rate(f"http://127.0.0.1:{served.port}/metrics")

    def without(self) -> float:
        """Return the messages per second of a consumer without a metrics port."""
        return self._rate("")

    def _rate(self, url: str) -> float:
        self._fill()
        if url:
            self._scraper.begin(url)
        began = time.perf_counter()
        handled = Consumer(self._queue, lambda _: None).drain()
        seconds = time.perf_counter() - began
        if url:
            self.scrapes.append(self._scraper.end())
        if handled != self._count:
            raise RuntimeError(f"{self._count} messages were due, and {handled} were handled: the figures are void")
        return handled / seconds


@contextmanager
def scraping() -> Iterator[Scraper]:
    """Yield a scraper in its own process until the block ends."""
    scraper = Scraper()
    try:
        yield scraper
    finally:
        scraper.close()


def rates(server: BenchServer, size: int, runs: int, messages: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the rates of a consumer that is scraped once a second and of one that is not, measured in turn."""
    with opened(server, size) as place, scraping() as scraper:
        measure = Measure(place.queue, lambda: place.due(messages), scraper, messages)
        measure.without()  # connects, and loads the scripts
        paired: PairedRates = alternate(measure.with_port, measure.without, runs)
    result = f"{paired.median:,.0f}/s, {cost(paired.ratio):.1%} less than without"
    say(f"drain, scraped {sum(measure.scrapes)} times in {runs} runs: {result}")
    return {"drain": paired.as_record() | {"scrapes": measure.scrapes}}


def cost(ratio: float) -> float:
    """Return the cost of a metrics port as a share of the rate without one."""
    return 1 - ratio
