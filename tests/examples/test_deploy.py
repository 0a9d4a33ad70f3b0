"""The files of examples/deploy, without the engines that read them: each start, check and stop works as described.

Each command runs as a process with exactly the environment in its file, on a real server. Its probes check it, and its
signal stops it within its time. Only the address of Redis differs, and the ports where a file has them: tests run side
by side, without their own network. No test depends on exact times: all limits are stretched.
"""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from delayq import Outgoing, Queue
from delayq.model.units import parse_duration
from tests.harness.scrapes import Scrape, get
from tests.harness.servers import RedisServer, free_port
from tests.harness.tree import ROOT
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

DEPLOY = ROOT / "examples" / "deploy"
REDIS = "redis://redis:6379/0"
DELAYQ = Path(sys.prefix) / "bin" / "delayq"
SLOWER = (
    8  # times slower than the machines that the files are for: each time limit for a program's end is as much longer
)
GRACE = {"docker": "10s", "systemd": "90s", "kubernetes": "30s"}  # for files that give none

APP = """
import time
from pathlib import Path

from delayq import Queue

emails = Queue("emails")


@emails.handler
def deliver(message):
    Path(f"began-{message.id}").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


class Service(NamedTuple):
    """What a file says about one program.

    Attributes:
        probes: the addresses to ask, by purpose.
        check: a command that succeeds while the program is healthy.
        stop: the signal that ends it.
        grace: the seconds that it is given to end.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    probes: Mapping[str, str]
    check: Sequence[str]
    stop: signal.Signals
    grace: float


class Running:
    """A running service."""

    def __init__(self, service: Service, folder: Path, url: str) -> None:
        self.service = service
        environment = {name: value.replace(REDIS, url) for name, value in service.environment.items()}
        assert environment["DELAYQ_URL"] == url
        self._own = {"PATH": f"{DELAYQ.parent}:{os.environ['PATH']}", "HOME": "/nonexistent"}
        self.process = subprocess.Popen(
            service.command, cwd=folder, env=self._own | environment, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reading = threading.Thread(target=lambda: self.lines.extend(self.process.stderr or ()))
        self._reading.start()

    def says(self, what: str) -> int | None:
        """What a probe answers; None if nobody listens."""
        try:
            return get(self.service.probes[what])[0]
        except urllib.error.URLError:
            return None

    def is_healthy(self) -> bool:
        """Whether the command that checks it succeeds."""
        done = subprocess.run([sys.executable, *self.service.check[1:]], capture_output=True, check=False)
        return done.returncode == 0

    def end(self) -> int:
        """Stop it as its file says. Return its exit code after everything that it started has ended."""
        try:
            code = self.process.wait(SLOWER * self.service.grace)
        finally:
            self.close()
        return code

    def close(self) -> None:
        """End it and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reading.join()
        if self.process.stderr:
            self.process.stderr.close()


Run = Callable[[Service], Running]


@pytest.fixture
def text() -> Callable[[str], str]:
    """The content of a file in the folder, with ports that nobody else uses."""
    ports = {name: str(free_port()) for name in ("8700", "8701", "8702")}
    return lambda name: re.sub("870[012]", lambda found: ports[found[0]], (DEPLOY / name).read_text())


@pytest.fixture
def redis_of_compose(start_server: Callable[..., RedisServer]) -> RedisServer:
    """A server with the settings in the compose file."""
    command = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["redis"]["command"]
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    return start_server(port=True, config={name.removeprefix("--"): value for name, value in settings.items()})


@pytest.fixture
def run(redis_of_compose: RedisServer, tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "tasks.py").write_text(APP)
    started: list[Running] = []

    def start(service: Service) -> Running:
        started.append(Running(service, tmp_path, redis_of_compose.url))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def queue(redis_of_compose: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=redis_of_compose.url) as queue:
        yield queue


def delayq(words: Sequence[str]) -> list[str]:
    slower = [
        f"{SLOWER * parse_duration(word)}s" if before == "--shutdown-timeout" else word
        for before, word in zip(["", *words], words, strict=False)
    ]
    return [str(DELAYQ), *slower]


def of_docker(text: Callable[[str], str], name: str) -> Service:
    """A service of the compose file; or, without a name, the image itself with the settings of the consumer."""
    image = dict(re.findall(r"^(ENTRYPOINT|CMD|STOPSIGNAL) (.*)$", text("Dockerfile"), re.MULTILINE))
    assert json.loads(image["ENTRYPOINT"]) == ["delayq"]
    service = yaml.safe_load(text("compose.yml"))["services"][name or "consumer"]
    words = service["command"] if name else json.loads(image["CMD"])
    stop = service.get("stop_signal") or image.get("STOPSIGNAL") or "SIGTERM"
    grace = parse_duration(service.get("stop_grace_period", GRACE["docker"]) if name else GRACE["docker"])
    port = next(words[at + 1] for at, word in enumerate(words) if word in {"--port", "--metrics-port"})
    probes = {"scrape": f"http://127.0.0.1:{port}/metrics"}
    check = service.get("healthcheck", {}).get("test", ["CMD", "true"])
    assert check[0] == "CMD"
    return Service(delayq(words), service["environment"], probes, check[1:], signal.Signals[stop], grace)


def of_kubernetes(text: Callable[[str], str], name: str) -> Service:
    """The container of a deployment."""
    documents = [
        each
        for file in ("consumer", "dashboard", "exporter")
        for each in yaml.safe_load_all(text(f"kubernetes/{file}.yml"))
    ]
    secrets = {each["metadata"]["name"]: each["stringData"] for each in documents if each["kind"] == "Secret"}
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in documents
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", name)
    )
    (container,) = pod["containers"]
    environment = {
        key: value for each in container["envFrom"] for key, value in secrets[each["secretRef"]["name"]].items()
    }
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    probes = {
        kind.removesuffix("Probe"): "http://127.0.0.1:{}{}".format(
            ports[container[kind]["httpGet"]["port"]], container[kind]["httpGet"]["path"]
        )
        for kind in container
        if kind.endswith("Probe")
    }
    seconds = pod.get("terminationGracePeriodSeconds")
    grace = parse_duration(GRACE["kubernetes"] if seconds is None else f"{seconds}s")
    return Service(delayq(container["args"]), environment, probes, (), signal.SIGTERM, grace)


def of_systemd(folder: Path) -> Service:
    """The unit, as an instance for the queue emails of the module tasks."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # a function of its own
    parser.read_string((DEPLOY / "delayq-consumer@.service").read_text())
    unit = parser["Service"]
    program, *words = unit["ExecStart"].replace("%i", "tasks:emails").split()
    assert Path(program).is_relative_to(unit["WorkingDirectory"])
    assert unit["EnvironmentFile"] == "/etc/delayq.env"
    assert (unit["Type"], unit["KillMode"], (folder / "tasks.py").exists()) == ("exec", "mixed", True)
    stop = signal.Signals[unit.get("KillSignal", "SIGTERM")]
    grace = parse_duration(unit.get("TimeoutStopSec", GRACE["systemd"]))
    return Service(delayq(words), {"DELAYQ_URL": REDIS}, {}, (), stop, grace)


def hands_back_what_it_holds(running: Running, queue: Queue, folder: Path, concurrency: int) -> None:
    """Stop a consumer with more messages than it can handle: running ones finish, and the rest is left for others."""
    queue.send_many([Outgoing(n) for n in range(100)])
    assert eventually(lambda: len(list(folder.glob("began-*"))) == concurrency)
    running.process.send_signal(running.service.stop)
    assert eventually(lambda: queue.stats().unack == concurrency)
    (folder / "go").touch()
    assert (running.end(), running.process.returncode) == (0, 0), running.lines
    stats, began = queue.stats(), len(list(folder.glob("began-*")))
    assert (stats.acked, stats.unack, stats.retry, stats.dead) == (began, 0, 0, 0)
    assert stats.pending + stats.ready == 100 - began
    assert "json" not in running.service.command or [json.loads(line) for line in running.lines]


def test_consumer_of_the_compose_file_is_healthy_scraped_and_stopped(
    text: Callable[[str], str], run: Run, queue: Queue, tmp_path: Path
):
    running = run(of_docker(text, "consumer"))
    assert eventually(running.is_healthy)
    queue.send("x", delay=600)
    assert (
        Scrape(get(running.service.probes["scrape"])[1]).value("delayq_messages", queue="emails", state="pending") == 1
    )
    queue.purge("pending")
    hands_back_what_it_holds(running, queue, tmp_path, 8)
    assert not running.is_healthy()


def test_image_runs_by_itself(text: Callable[[str], str], run: Run, queue: Queue, tmp_path: Path):
    running = run(of_docker(text, ""))
    assert eventually(lambda: running.says("scrape") == 200)
    hands_back_what_it_holds(running, queue, tmp_path, 8)


def test_container_of_the_consumer_is_probed_and_stopped(
    text: Callable[[str], str], run: Run, queue: Queue, tmp_path: Path, redis_of_compose: RedisServer
):
    running = run(of_kubernetes(text, "emails-consumer"))
    assert sorted(running.service.probes) == ["liveness", "readiness", "startup"]
    assert eventually(lambda: running.says("startup") == 200)
    assert eventually(lambda: running.says("readiness") == 200)
    redis_of_compose.stop()
    assert eventually(lambda: running.says("readiness") == 503)
    assert running.says("liveness") == 200
    redis_of_compose.start()
    assert eventually(lambda: running.says("readiness") == 200)
    hands_back_what_it_holds(running, queue, tmp_path, 8)


@pytest.mark.parametrize("where", ["compose", "kubernetes"])
def test_exporter_is_probed_scraped_and_stopped(text: Callable[[str], str], run: Run, queue: Queue, where: str):
    queue.send("x", delay=600)
    service = of_docker(text, "exporter") if where == "compose" else of_kubernetes(text, "delayq-exporter")
    running = run(service)
    assert all(eventually(lambda each=each: running.says(each) == 200) for each in service.probes)  # type: ignore[misc]
    page = next(iter(service.probes.values())).rpartition("/")[0] + "/metrics"
    assert Scrape(get(page)[1]).value("delayq_messages", queue="emails", state="pending") == 1
    running.process.send_signal(service.stop)
    assert running.end() == 0


@pytest.mark.parametrize("where", ["compose", "kubernetes"])
def test_dashboard_asks_for_its_token_and_is_stopped(text: Callable[[str], str], run: Run, queue: Queue, where: str):
    queue.send("x", delay=600)
    service = of_docker(text, "dashboard") if where == "compose" else of_kubernetes(text, "delayq-dashboard")
    page = f"http://127.0.0.1:{service.command[service.command.index('--port') + 1]}"
    probes = {purpose: address for purpose, address in service.probes.items() if purpose != "scrape"}  # needs the token
    service = service._replace(probes={**probes, "page": f"{page}/login"})
    running = run(service)
    assert all(eventually(lambda each=each: running.says(each) == 200) for each in service.probes)  # type: ignore[misc]
    token = service.environment["DELAYQ_DASHBOARD_TOKEN"]
    request = urllib.request.Request(f"{page}/metrics", headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert Scrape(answer.read().decode()).value("delayq_messages", queue="emails", state="pending") == 1
    running.process.send_signal(service.stop)
    assert running.end() == 0


def test_unit_of_systemd_is_started_and_stopped(run: Run, queue: Queue, tmp_path: Path):
    running = run(of_systemd(tmp_path))
    assert eventually(lambda: sum('"consumer started"' in line for line in running.lines) == 2)
    hands_back_what_it_holds(running, queue, tmp_path, 16)


def test_health_check_of_the_released_image_follows_what_runs(redis_server: RedisServer, tmp_path: Path):
    text, image = (DEPLOY / "healthcheck.py").read_text(), (ROOT / "Dockerfile").read_text()
    exposed = next(line.split()[1:] for line in image.splitlines() if line.startswith("EXPOSE "))
    assert sorted(re.findall(r"127\.0\.0\.1:(\d+)", text)) == exposed
    port = free_port()
    check = tmp_path / "healthcheck.py"
    check.write_text(re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda found: str(port) if found[0] == "8701" else "1", text))

    def healthy() -> bool:
        return subprocess.run([sys.executable, check], check=False).returncode == 0

    assert not healthy()
    with subprocess.Popen([DELAYQ, "exporter", "--port", str(port), "--url", redis_server.url]) as exporter:
        try:
            assert eventually(healthy)
        finally:
            exporter.terminate()
    assert not healthy()
