"""``python -m benchmarks.pages``: how long the dashboard takes for a page when a state holds a million messages.

With ``--queues``: how long it takes for the overview of that many queues, each with a day of samples. With ``--busy``:
the size of the overview of that many queues, and the bytes per second that it sends while all rows change.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import threading
import time
import zlib
from html import unescape
from typing import Any
from urllib.parse import quote

import click
import httpx
from delayq.cli.output import print_table

from benchmarks.server import BenchServer
from delayq import Outgoing, Queue
from delayq.protocol.queue_keys import QueueKeys
from delayq.web import Dashboard, app
from delayq.web.poller import MOST_WATCHERS
from delayq.web.queue_list import PAGE, QueueListView

BATCH = 10_000
SAME_INSTANT_MS = 4_000_000_000_000
PAYLOAD = {"to": "someone@example.org", "subject": "Your order has shipped", "order": 4711}
MINUTES = 1440
BUSY_SECONDS = 60.0
FOLLOWED = ("Next", "Last", "Back")


def fill(server: BenchServer, queue: Queue, messages: int) -> None:
    """Send `messages` messages, half of them due at one instant, and create as many dead letters with errors."""
    keys = QueueKeys("delayq", queue.name)
    for start in range(0, 2 * messages, BATCH):
        queue.send_many([Outgoing(PAYLOAD, delay=3600 + n, id=f"m{n:08}") for n in range(start, start + BATCH)])
    pipe = server.client.pipeline(transaction=False)
    for start in range(0, messages, BATCH):
        ids = [f"m{n:08}" for n in range(start, start + BATCH)]
        dead = [f"m{n:08}" for n in range(messages + start, messages + start + BATCH)]
        if start < messages // 2:
            pipe.zadd(keys.pending, dict.fromkeys(ids, SAME_INSTANT_MS))
        pipe.zrem(keys.pending, *dead)
        pipe.zadd(keys.dead, {each: 1_700_000_000_000 + number + start for number, each in enumerate(dead)})
        pipe.hset(keys.errors, mapping={each: f"HTTP 50{number % 7}: no luck" for number, each in enumerate(dead)})
        pipe.hset(keys.reasons, mapping=dict.fromkeys(dead, "exhausted"))
        pipe.execute()


async def timed(dashboard: Dashboard, path: str, times: int) -> tuple[list[float], str]:
    """Return the page, and how long the dashboard took for it each time, in ms."""
    transport = httpx.ASGITransport(dashboard)
    took, text = [], ""
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for _ in range(times):
            began = time.perf_counter()
            answer = await client.get(path)
            took.append((time.perf_counter() - began) * 1000)
            text = answer.raise_for_status().text
    return took, text


def link(page: str, title: str) -> str:
    """Return the target of a link on a page."""
    return unescape(page.partition(f">{title}</a>")[0].rpartition('href="')[2].partition('"')[0])


async def measure(url: str, messages: int, times: int) -> list[tuple[str, str, str]]:
    """Return each page's name, and how long it took: median and maximum."""
    dashboard, base = app({"main": url}), "/main/queues/many"
    rows: list[tuple[str, str, str]] = []

    async def look(what: str, path: str) -> str:
        took, text = await timed(dashboard, path, times + 1)
        took = took[1:]
        rows.append((what, f"{statistics.median(took):.1f}", f"{max(took):.1f}"))
        return text

    await look("overview", "/")
    await look("queue", base)
    for state in ("pending", "dead"):
        path = f"{base}/messages"
        page = await look(f"{state}: first page", f"{path}?state={state}")
        for title in FOLLOWED:
            page = await look(f"{state}: {title.lower()}", path + link(page, title))
    gone = quote(quote(f"{SAME_INSTANT_MS} m{messages // 4:08}x", safe=""))
    await look("pending: after an id that is gone", f"{base}/messages?state=pending&after={gone}")
    await look("search by payload, one step", f"{base}/messages?state=pending&where=payload&text=nobody")
    await look("search by error, one step", f"{base}/messages?state=dead&where=error&text=nobody")
    await look("message", f"{base}/messages/m00000007")
    for name in ("dead", "schedules", "consumers"):
        await look(name, f"{base}/{name}")
    await look("server", "/main/server")
    await dashboard.close()
    return rows


def multiply(server: BenchServer, queues: int) -> None:
    """Create `queues` queues, each with a day of samples."""
    now, model = time.time() * 1000, QueueKeys("delayq", "model")
    for minute in range(MINUTES):
        at = str(now - (MINUTES - minute) * 60_000)
        with Queue("model", url=server.url, clock=lambda at=at: at) as queue:  # type: ignore[misc]
            queue.send(PAYLOAD)
            queue.ack(queue.receive(1))
            queue.sample()
    pipe = server.client.pipeline(transaction=False)
    for kept in (model.meta, model.stats, model.samples_minute, model.samples_ten):
        dumped = server.client.dump(kept)
        assert dumped is not None, f"{kept} was counted"
        for number in range(queues):
            pipe.restore(kept.replace("{model}", f"{{queue-{number:05}}}"), 0, dumped)
        pipe.execute()
    server.client.unlink(*server.client.scan_iter("delayq:{model}:*"))


async def measure_many(url: str, queues: int, times: int) -> list[tuple[str, str, str]]:
    """Return how long the overview takes in several ways during a health sweep, and how long the sweep takes."""
    dashboard, rows = app({"main": url}, interval=0), list[tuple[str, str, str]]()
    watch, began = dashboard.state.watches["main"], time.perf_counter()

    async def look(what: str, *paths: str) -> None:
        took = [(await timed(dashboard, path, 1))[0][0] for path in paths]
        rows.append((what, f"{statistics.median(took):.1f}", f"{max(took):.1f}"))

    await look("overview, the very first", "/")
    pages = [f"/main/queues?start=queue-{start:05}" for start in range(PAGE, min(queues, MOST_WATCHERS), PAGE)]
    await look("page seen for the first time", *pages)
    await look("page seen before", *pages)
    await look("found by name", *["/?name=99"] * times)
    while (sight := await watch.now(QueueListView())).looked_at < sight.total:  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.5)
    rows.append(("round over all queues", f"{(time.perf_counter() - began) * 1000:.0f}", ""))
    await look("in trouble", *["/?trouble=1"] * times)
    await look("metrics", *["/metrics"] * 3)
    await dashboard.close()
    return rows


class Busy(threading.Thread):
    """Changes queues, each of them several times between two refreshes."""

    def __init__(self, url: str, queues: int) -> None:
        super().__init__()
        self._now_ms = 0.0
        names = [f"queue-{number:05}" for number in range(queues)]
        self._queues = [Queue(name, url=url) for name in names]
        self._past = [Queue(name, url=url, clock=lambda: f"{self._now_ms:.0f}") for name in names]
        self._is_over = threading.Event()
        self._chance = random.Random(1)  # reproducible, not a secret

    def run(self) -> None:
        """Send and ack until stopped."""
        while not self._is_over.wait(0.2):
            self._turn(self._queues)

    def live_an_hour(self) -> None:
        """Create an hour of samples, so that each row has its chart."""
        began_ms = time.time() * 1000 - 61 * 60_000
        for minute in range(60):
            self._now_ms = began_ms + minute * 60_000
            self._turn(self._past)
            for queue in self._past:
                queue.sample()
        self._turn(self._queues)

    def _turn(self, queues: list[Queue]) -> None:
        for queue in queues:
            queue.send_many([Outgoing(PAYLOAD) for _ in range(self._chance.randint(1, 9))])
            queue.ack(queue.receive(self._chance.randint(1, 8)))

    def end(self) -> None:
        """Stop."""
        self._is_over.set()
        self.join()


async def measure_bytes(url: str, queues: int, seconds: float) -> list[tuple[str, str, str]]:
    """Return how many bytes are sent to a browser, compressed and not."""
    dashboard, busy = app({"main": url}), Busy(url, queues)
    await asyncio.to_thread(busy.live_an_hour)
    busy.start()
    rows: list[tuple[str, str, str]] = []
    try:
        page, plain_page = await sent(dashboard, "/")
        files = set(re.findall(r'(?:href|src)="(/static/[^"#]+)', plain_page.decode()))
        sizes = [await sent(dashboard, each) for each in sorted(files)]
        stream = unescape(re.findall(r'data-stream="([^"]+)"', plain_page.decode())[0])
        live, plain_live = await sent(dashboard, stream, seconds)
    finally:
        await asyncio.to_thread(busy.end)
        await dashboard.close()
    rows.append(("the page", f"{len(page):,}", f"{len(plain_page):,}"))
    wire, read = (sum(map(len, each)) for each in zip(*sizes, strict=True))
    rows.append(("its files, on the first visit", f"{wire:,}", f"{read:,}"))
    rows.append(("the stream, per second", f"{len(live) / seconds:,.0f}", f"{len(plain_live) / seconds:,.0f}"))
    return rows


async def sent(dashboard: Dashboard, path: str, seconds: float = 60) -> tuple[bytes, bytes]:
    """Return a response as sent and as decompressed; read a stream for some seconds."""
    asked, body = False, b""

    async def receive() -> Any:
        nonlocal asked
        if asked:
            await asyncio.sleep(seconds)
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal body
        body += message.get("body", b"")

    name, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": name, "query_string": query.encode(), "root_path": ""}
    scope |= {"headers": [(b"host", b"127.0.0.1"), (b"accept-encoding", b"gzip")], "scheme": "http"}
    await dashboard(scope, receive, send)
    is_packed = body.startswith(b"\x1f\x8b")  # a file of a few bytes is not
    return body, zlib.decompressobj(31).decompress(body) if is_packed else body


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, help="Messages in pending, and as many dead letters.")
@click.option("--times", default=20, show_default=True, help="Requests per page.")
@click.option("--queues", default=0, help="Measure the overview of this many queues instead.")
@click.option("--busy", default=0, help="Measure the bytes of the overview of this many changing queues instead.")
def main(messages: int, times: int, queues: int, busy: int) -> None:
    """Measure how long the dashboard's pages take, in milliseconds, requested in the same process."""
    if busy:
        with BenchServer() as server:
            click.echo(f"{busy:,} changing queues")
            head = ("sent to a browser", "#bytes, compressed", "#uncompressed")
            print_table(head, asyncio.run(measure_bytes(server.url, busy, BUSY_SECONDS)))
        return
    if queues:
        with BenchServer() as server:
            multiply(server, queues)
            click.echo(f"Redis {server.version}: {queues:,} queues")
            print_table(("page", "#median, ms", "#longest, ms"), asyncio.run(measure_many(server.url, queues, times)))
        return
    with BenchServer() as server, Queue("many", url=server.url) as queue:
        fill(server, queue, messages)
        counts = queue.stats()
        click.echo(f"Redis {server.version}: {counts.pending:,} pending, {counts.dead:,} dead")
        print_table(("page", "#median, ms", "#longest, ms"), asyncio.run(measure(server.url, messages, times)))


if __name__ == "__main__":
    main()
