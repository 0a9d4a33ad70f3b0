"""The metrics port of a consumer, and the exporter: real processes, queried over HTTP."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from delayq.cli import exporter
from delayq.cli.exporter import address
from prometheus_client.registry import Collector

import delayq as library
from delayq import Outgoing, Queue, Topic
from delayq.metrics import Metrics, MetricsServer, Response
from delayq.model.extras import install
from delayq.queue_names import NameSearch
from tests.cli.conftest import Invoke, Start, delayq, environment, followed, invoke, server, start  # noqa: F401
from tests.harness.scrapes import OPENMETRICS, Scrape, get
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

ANY = ("--metrics-port", "0")
UPS = ("delayq_up", "delayq_topic_up", "delayq_server_up")


class Served:
    """A process that serves metrics; `lines` is its log."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines = followed(process)
        assert eventually(lambda: bool(self._urls()) or process.poll() is not None)
        self.url = self._urls()[0]

    def _urls(self) -> list[str]:
        return re.findall(r"url=(http\S+)/metrics", "".join(self.lines))

    def scrape(self) -> Scrape:
        return Scrape(get(f"{self.url}/metrics")[1])

    def whole(self, **labels: str) -> Scrape:
        """The first scrape in which nothing with these labels is down, as it can be when the machine pauses."""
        scrapes: list[Scrape] = []

        def is_whole() -> bool:
            scrapes.append(self.scrape())
            return set(scrapes[-1].values(UPS, **labels)) == {1}

        assert eventually(is_whole)
        return scrapes[-1]

    def status(self, path: str) -> int:
        return get(f"{self.url}{path}")[0]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


Serve = Callable[..., Served]


@pytest.fixture
def serve(start: Start) -> Serve:  # noqa: F811
    """``serve("consume", …)``: a process that serves metrics."""
    return lambda *words, **options: Served(start(*words, **options))


@pytest.fixture
def queue(server: RedisServer) -> Iterator[Queue]:  # noqa: F811
    with Queue("emails", url=server.url, shards=None) as queue:
        yield queue


def test_consumer_serves_the_values_of_stats(serve: Serve, queue: Queue):
    queue.send_many([Outgoing("x")] * 3 + [Outgoing("x", delay=600)] * 2)
    consumer = serve("consume", "emails", "--exec", "true", *ANY)
    assert eventually(lambda: queue.stats().acked == 3)
    scrape, stats = consumer.whole(), queue.stats()
    for name in ("sent", "delivered", "acked", "nacked", "promoted"):
        assert scrape.value(f"delayq_messages_{name}_total", queue="emails") == getattr(stats, name)
    assert scrape.value("delayq_messages", queue="emails", state="pending") == 2
    assert scrape.value("delayq_lateness_seconds_count", queue="emails") == sum(stats.lateness.values()) == 3
    assert "process_cpu_seconds_total" in scrape.names()  # and metrics of the process itself
    status, text, headers = get(f"{consumer.url}/metrics", OPENMETRICS)
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "application/openmetrics-text")
    assert Scrape(text, is_openmetrics=True).value("delayq_messages_acked_total", queue="emails") == 3
    assert eventually(lambda: consumer.status("/readyz") == 200)
    assert (consumer.status("/healthz"), consumer.status("/other")) == (200, 404)
    assert consumer.end() == 0


@pytest.mark.full
def test_only_this_machine_is_served_unless_another_address_is_given(serve: Serve):
    assert serve("consume", "emails", "--exec", "true", *ANY).url.startswith("http://127.0.0.1:")
    assert serve("consume", "emails", "--exec", "true", *ANY, "--metrics-host", "::1").url.startswith("http://[::1]:")


def test_port_in_use_is_reported_before_anything_is_consumed(invoke: Invoke, queue: Queue):  # noqa: F811
    queue.send("x")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["consume", "emails", "--exec", "true", "--burst", "--metrics-port"], ["exporter", "--port"]
        for each in words:
            result = invoke(*each, str(port))
            assert result.exit_code == 1
            assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in result.stderr
    assert queue.stats().delivered == 0


def test_port_option_without_a_port_is_refused(invoke: Invoke):  # noqa: F811
    result = invoke("consume", "emails", "--exec", "true", "--metrics-host", "0.0.0.0")
    assert (result.exit_code, "--metrics-host needs --metrics-port" in result.stderr) == (2, True)
    result = invoke("consume", "m:q", "--reload", "--processes", "2", "--metrics-port", "0")
    assert (result.exit_code, "works with only one process" in result.stderr) == (2, True)


def test_package_that_is_missing_is_named(invoke: Invoke, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    for name in [name for name in sys.modules if name.split(".")[:2] == ["delayq", "metrics"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(library, "metrics")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for words in (("exporter", "--once"), ("consume", "emails", "--exec", "true", *ANY)):
        result = invoke(*words)
        assert (result.exit_code, install("metrics") in result.stderr) == (2, True)


class Broken(Collector):
    """A metric of a program, which fails."""

    def collect(self) -> list[Any]:
        raise ValueError("no figure")


def test_page_that_cannot_be_made_gives_a_server_error_and_is_logged():
    with structlog.testing.capture_logs() as lines:
        metrics = Metrics()
        page = {"/metrics": lambda accept: Response(200, *metrics.exposition(accept, beside=Broken()))}
        with MetricsServer("127.0.0.1", 0, page) as served:
            status, text, _ = get(f"http://127.0.0.1:{served.port}/metrics")
    assert (status, text) == (500, "internal error: see the log\n")
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["request failed"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 200),
        (b"\r\nGET /healthz?x HTTP/1.1\r\nHOST: 127.0.0.1\r\n\r\n", 200),
        (b"HEAD /healthz HTTP/1.1\r\nHost: [::1]:8701\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\nHost: ops.example.org\n\n", 200),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\nHost: [\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", 413),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 17_000, 431),
    ],
)
def test_request_that_is_wrong_is_refused(head: bytes, status: int):
    ok = {"/healthz": lambda _: Response(200, b"ok\n")}
    with (
        MetricsServer("127.0.0.1", 0, ok, ["ops.example.org"]) as served,
        socket.create_connection((served.host, served.port), timeout=60) as client,
    ):
        client.sendall(head)
        answer = client.makefile("rb").read()
    assert int(answer.split()[1]) == status
    assert (status != 200 or answer.endswith(b"\r\n\r\n" if head.startswith(b"HEAD") else b"ok\n")) is True


def test_slow_page_delays_no_other():
    waiting, release = threading.Semaphore(0), threading.Event()

    def slow(_: str) -> Response:
        waiting.release()
        release.wait()
        return Response(200, b"")

    routes = {"/slow": slow, "/healthz": lambda _: Response(200, b"ok\n")}
    with MetricsServer("127.0.0.1", 0, routes) as served, contextlib.ExitStack() as stack:
        stack.callback(release.set)
        for _ in range(100):  # more than it has connections
            client = stack.enter_context(socket.create_connection((served.host, served.port)))
            client.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        for _ in range(4):
            waiting.acquire()
        assert get(f"http://127.0.0.1:{served.port}/healthz")[:2] == (200, "ok\n")
        assert sum(each.name == "delayq-metrics-route" for each in threading.enumerate()) <= 8


def test_server_on_all_addresses_answers_to_any_name():
    with (
        MetricsServer("0.0.0.0", 0, {"/": lambda _: Response(200, b"")}) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=60) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: exporter:8701\r\n\r\n")
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.full
def test_exporter_answers_to_names_that_are_allowed(serve: Serve, queue: Queue):
    queue.send("x")
    exporter = serve("exporter", "--port", "0", "--allow-host", "ops.example.org")
    asked = {"ops.example.org": 200, "localhost:1": 200, "evil.example": 421}
    assert {name: get(f"{exporter.url}/healthz", host=name)[0] for name in asked} == asked


@pytest.mark.full
def test_consumer_is_alive_but_not_ready_while_redis_is_unavailable(
    serve: Serve,
    own_server: RedisServer,
    environment: dict[str, str],  # noqa: F811
):
    consumer = serve("consume", "emails", "--exec", "true", *ANY, env=environment | {"DELAYQ_URL": own_server.url})
    assert eventually(lambda: consumer.status("/readyz") == 200)
    own_server.stop()
    status, text, _ = get(f"{consumer.url}/readyz")
    assert (status, text) == (503, "no answer from Redis within 2 s for emails\n")
    assert consumer.status("/healthz") == 200
    assert consumer.scrape().value("delayq_up", queue="emails") == 0
    own_server.start()
    assert eventually(lambda: consumer.status("/readyz") == 200)
    assert consumer.whole().value("delayq_up", queue="emails") == 1


BLOCKING = """
import asyncio, threading, time
from delayq.aio import Queue
emails = Queue("emails")

@emails.handler
async def handle(message):
    while message.payload == "block" and not open("released").read():
        time.sleep(0.01)
"""


@pytest.mark.full
@pytest.mark.parametrize("processes", ["1", "2"])
def test_consumer_with_a_blocked_event_loop_is_not_alive_until_it_runs_again(
    processes: str, serve: Serve, queue: Queue, tmp_path: Path
):
    (tmp_path / "blocking.py").write_text(BLOCKING)
    (tmp_path / "released").touch()
    consumer = serve("consume", "blocking:emails", *ANY, "--stall-timeout", "1s", "--processes", processes)
    queue.send("x")
    assert eventually(lambda: consumer.status("/readyz") == 200)
    assert eventually(lambda: queue.stats().acked == 1)
    queue.send("block")
    assert eventually(lambda: consumer.status("/healthz") == 503)
    assert "the consumer's loop has not run for" in get(f"{consumer.url}/healthz")[1]
    (tmp_path / "released").write_text("now")
    assert eventually(lambda: consumer.status("/healthz") == 200)
    assert eventually(lambda: consumer.whole().value("delayq_messages_acked_total", queue="emails") == 2)
    assert consumer.end() == 0


@pytest.mark.full
def test_stopping_consumer_is_alive_but_not_ready(serve: Serve, queue: Queue, tmp_path: Path):
    (tmp_path / "go").touch()
    consumer = serve("consume", "emails", "--exec", f"while ! [ -s {tmp_path}/go ]; do sleep 0.01; done", *ANY)
    queue.send("x")
    assert eventually(lambda: queue.stats().unack == 1)
    consumer.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: consumer.status("/readyz") == 503)
    assert consumer.status("/healthz") == 200
    (tmp_path / "go").write_text("now")
    assert consumer.process.wait(120) == 0
    assert queue.stats().acked == 1


@pytest.mark.full
def test_supervisor_serves_once_for_its_processes(serve: Serve, queue: Queue):
    consumer = serve("consume", "emails", "more", "--exec", "true", "-p", "2", *ANY)

    def is_missing_a_process() -> bool:
        """Kill the newest process. Another one starts soon, but each restart takes longer."""
        last = re.findall(r"consumer process started .*pid=(\d+)", "".join(consumer.lines))[-1]
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(last), signal.SIGKILL)
        return consumer.status("/readyz") == 503

    assert eventually(lambda: consumer.status("/readyz") == 200)
    queue.send("x")
    assert eventually(lambda: queue.stats().acked == 1)
    assert consumer.whole().value("delayq_messages_acked_total", queue="emails") == 1
    assert consumer.whole().value("delayq_up", queue="more") == 1
    assert eventually(is_missing_a_process)
    assert eventually(lambda: consumer.status("/readyz") == 200)
    assert consumer.end() == 0


@pytest.mark.full
def test_topic_consumer_serves_metrics_of_its_groups(serve: Serve, server: RedisServer):  # noqa: F811
    with Topic("orders", url=server.url) as topic:
        topic.publish("x")
        words = ["--topic", "orders", "--group", "log", "--start", "0"]
        consumer = serve("consume", "builtins:str", *words, *ANY)
        assert eventually(lambda: [group.lag for group in topic.groups()] == [0])
        scrape = consumer.whole()
    assert scrape.value("delayq_topic_lag", topic="orders", group="log") == 0
    assert scrape.value("delayq_topic_consumers", topic="orders", group="log") == 1
    assert eventually(lambda: consumer.status("/readyz") == 200)
    assert consumer.end() == 0


# The exporter


def test_exporter_serves_all_queues(serve: Serve, queue: Queue, server: RedisServer):  # noqa: F811
    queue.send("x")
    with Queue("more", url=server.url) as more:
        more.send("x")
    exporter = serve("exporter", "--port", "0")
    scrape = exporter.whole()
    for name in ("emails", "more"):
        assert scrape.value("delayq_messages_sent_total", queue=name) == 1
    assert exporter.status("/healthz") == 200
    assert eventually(lambda: exporter.status("/readyz") == 200)
    assert exporter.end() == 0


@pytest.mark.full
def test_exporter_can_start_before_its_servers_and_reports_them_separately(
    serve: Serve,
    queue: Queue,
    own_server: RedisServer,
    server: RedisServer,  # noqa: F811
):
    queue.send("x")
    own_server.stop()
    exporter = serve("exporter", "--port", "0", "--url", server.url, "--url", own_server.url)
    labels = [url.removeprefix("unix://") for url in (server.url, own_server.url)]
    scrape = exporter.whole(server=labels[0])
    assert [scrape.value("delayq_server_up", server=label) for label in labels] == [1, 0]
    assert scrape.value("delayq_messages_sent_total", server=labels[0], queue="emails") == 1
    assert (exporter.status("/healthz"), exporter.status("/readyz")) == (200, 503)
    own_server.start()
    assert eventually(lambda: exporter.status("/readyz") == 200)


def test_exporter_uses_the_given_names_of_servers(invoke: Invoke, queue: Queue, server: RedisServer):  # noqa: F811
    queue.send("x")
    done = invoke("exporter", "--once", "--url", f"west={server.url}", "--url", "east=redis://127.0.0.1:1")
    assert 'delayq_messages_sent_total{queue="emails",server="west"} 1.0' in done.stdout
    assert 'delayq_server_up{server="east"} 0.0' in done.stdout
    assert done.exit_code == 1
    assert re.fullmatch(
        r"delayq: .* 127\.0\.0\.1:1\..*; check that the server is running, and check the URL\n", done.stderr
    )


def test_exporter_can_print_what_a_scrape_gets_once(invoke: Invoke, queue: Queue, server: RedisServer):  # noqa: F811
    queue.send("x")
    with Topic("orders", url=server.url) as topic:
        topic.publish("x")
        topic.group("billing", start="0").lag()
    result = invoke("exporter", "--once")
    assert result.exit_code == 0
    scrape = Scrape(result.stdout)
    assert scrape.value("delayq_messages_sent_total", queue="emails") == 1
    assert scrape.value("delayq_topic_lag", topic="orders", group="billing") == 1
    missing = invoke("exporter", "--once", "--topic", "nosuch")
    assert missing.exit_code == 1
    assert [Scrape(missing.stdout).value("delayq_topic_up", topic=name) for name in ("orders", "nosuch")] == [1, 0]


def test_exporter_prints_once_the_first_search_has_ended_however_long_it_takes(
    invoke: Invoke,  # noqa: F811
    queue: Queue,
    server: RedisServer,  # noqa: F811, ARG001
    monkeypatch: pytest.MonkeyPatch,
):
    queue.send("x")
    steps = NameSearch.steps

    def slow(search: NameSearch) -> Iterator[None]:
        time.sleep(1.5)
        yield from steps(search)

    monkeypatch.setattr(NameSearch, "steps", slow)
    monkeypatch.setattr(exporter, "SECONDS", 1.0)
    monkeypatch.setattr(Metrics.__init__, "__defaults__", ((), (), (), 1.0))
    result = invoke("exporter", "--once")
    assert Scrape(result.stdout).value("delayq_up", queue="emails") == 1
    assert result.exit_code == 0


def test_exporter_refuses_invalid_options(invoke: Invoke):  # noqa: F811
    for words, said in (
        (("--topic", "a", "--url", "redis://a", "--url", "redis://b"), "--topic works with only one --url"),
        (("--url", ""), "the URL is empty"),
        (("--url", "a=redis://a", "--url", "redis://b"), "give --url NAME=URL for each"),
    ):
        result = invoke("exporter", "--once", *words)
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_no_label_has_the_secrets_of_a_url():
    assert address("redis://user:secret@redis-1:6379/2?socket_timeout=5") == "redis-1:6379/2"
    assert address("unix:///run/redis@home.sock") == "/run/redis@home.sock"
    assert address("redis://token@host") == "host"
