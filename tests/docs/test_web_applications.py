"""The applications of docs/web-applications.md serve and stop as the page says, in real web servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from delayq import Queue
from tests.conftest import StartServer
from tests.harness.pages import blocks
from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.same_on_all_servers]

PAGE = ROOT / "docs" / "web-applications.md"
UVICORN = ["uvicorn", "--uds"]
BIND = ["--graceful-timeout", "25", "--bind"]  # of gunicorn

# What readers would put into the handlers: work that takes longer than it takes to send a signal.
SLOW = """
import asyncio, time
import {module}

{module}.mails.handlers.is_replaceable = True

@{module}.mails.handler
{define} handler(message):
    print("began", flush=True)
    {sleep}(1.5)
    print("ended", flush=True)

from {application} import app
"""
SLOW_ASYNC = SLOW.format(module="shop", define="async def", sleep="await asyncio.sleep", application="{application}")
SLOW_SYNC = SLOW.format(module="site_pages", define="def", sleep="time.sleep", application="site_pages")

# The consumer's `run` in a task, which handles signals itself.
RUN_IN_A_TASK = """
import asyncio
from contextlib import asynccontextmanager
from starlette.applications import Starlette
import shop
from delayq.aio import Consumer

@asynccontextmanager
async def lifespan(_):
    async with shop.mails:
        task = asyncio.create_task(Consumer(shop.mails).run())
        yield
        await task

app = Starlette(routes=shop.app.routes, lifespan=lifespan)
"""


class WebServer:
    """A running web server, and what it has printed."""

    def __init__(self, command: list[str], application: str, folder: Path, redis_url: str) -> None:
        self._socket, self._output = folder / "web.sock", folder / "output"
        program, *options = command
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", program, *options, self._address(program), application],
                cwd=folder,
                env=os.environ | {"DELAYQ_URL": redis_url, "PYTHONPATH": str(folder)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _address(self, program: str) -> str:
        return f"unix:{self._socket}" if program == "gunicorn" else str(self._socket)

    @property
    def printed(self) -> str:
        return self._output.read_text()

    def sign_up(self, address: str) -> httpx.Response:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self._socket)), timeout=30) as client:
            return client.post("http://web/users", json={"number": 7, "address": address})

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:  # httpx leaves a socket open that it cannot connect
            if probe.connect_ex(str(self._socket)) != 0:
                return False
        return self.sign_up("first@example.org").status_code == 202

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(120)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for block in blocks(PAGE):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text)
    return tmp_path


@pytest.fixture
def serving(folder: Path, redis_server: RedisServer) -> Iterator[Callable[..., WebServer]]:
    """``serving(command, application)``: a web server that has answered a first request."""
    started: list[WebServer] = []

    def serve(command: list[str], application: str, redis_url: str = redis_server.url) -> WebServer:
        started.append(WebServer(command, application, folder, redis_url))
        assert eventually(started[-1].answers), started[-1].printed
        return started[-1]

    yield serve
    for each in started:
        each.kill()


def consumes(server: WebServer, queue: Queue, number: signal.Signals = signal.SIGTERM) -> None:
    """Check that a signal during a handler ends the web server, once that handler has ended."""
    assert eventually(lambda: "began" in server.printed), server.printed
    code = server.stop(number)
    assert code in {0, -number}, server.printed
    assert server.printed.count("began") == server.printed.count("ended") == 1
    assert not server.answers()
    stats = queue.stats()
    assert (stats.acked, stats.inside, stats.nacked) == (1, 0, 0)


@pytest.mark.parametrize(
    ("command", "application", "number"),
    [
        (UVICORN, "shop_with_consumer", signal.SIGTERM),
        (UVICORN, "in_a_task", signal.SIGTERM),
        (UVICORN, "in_a_task", signal.SIGINT),
        (["gunicorn", "-k", "uvicorn.workers.UvicornWorker", *BIND], "in_a_task", signal.SIGTERM),
        (["gunicorn", "-k", "asgi", *BIND], "in_a_task", signal.SIGTERM),
    ],
)
def test_signal_stops_both_the_web_server_and_its_consumer(
    folder: Path,
    serving: Callable[..., WebServer],
    redis_server: RedisServer,
    command: list[str],
    application: str,
    number: signal.Signals,
):
    (folder / "in_a_task.py").write_text(RUN_IN_A_TASK)
    (folder / "slow.py").write_text(SLOW_ASYNC.format(application=application))
    with Queue("mails", url=redis_server.url) as queue:
        consumes(serving(command, "slow:app"), queue, number)


def test_hooks_of_gunicorn_stop_the_consumer_of_each_worker(
    folder: Path, serving: Callable[..., WebServer], redis_server: RedisServer
):
    (folder / "slow.py").write_text(SLOW_SYNC)
    command = ["gunicorn", "--config", "settings.py", "-k", "gthread", "--threads", "8", *BIND]
    with Queue("mails", url=redis_server.url) as queue:
        consumes(serving(command, "slow:app"), queue)


@pytest.mark.parametrize(
    ("command", "application"),
    [(UVICORN, "shop:app"), (["gunicorn", "-k", "gthread", *BIND], "site_pages:app")],
    ids=["uvicorn", "gunicorn"],
)
def test_outage_is_answered_with_503(
    serving: Callable[..., WebServer], start_server: StartServer, command: list[str], application: str
):
    redis_server = start_server()
    server = serving(command, application, redis_server.url)
    redis_server.kill()
    answer = server.sign_up("ann@example.org")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "check that the server is running" in answer.text
