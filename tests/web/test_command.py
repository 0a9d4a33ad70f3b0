"""The command delayq dashboard: its options, errors and end."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from delayq.cli import main
from delayq.cli.dashboard import dashboard

from delayq import Consumer, Queue, current_message
from delayq.web.passwords import matches
from tests.harness.servers import RedisServer

Start = Callable[..., "tuple[subprocess.Popen[str], str]"]
Run = Callable[..., "tuple[int, str]"]


@pytest.fixture
def start(redis_server: RedisServer, tmp_path: Path) -> Iterator[Start]:
    """``start("--read-only", …)``: a process that serves, and its address."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> tuple[subprocess.Popen[str], str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        command = [sys.executable, "-m", "delayq.cli", "dashboard", "--port", "0", "--url", redis_server.url, *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=kept)
        started.append(process)
        assert process.stderr is not None
        return process, next(found[0] for line in process.stderr if (found := re.findall(r"http://\S+", line)))

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
def run(redis_server: RedisServer) -> Iterator[Run]:
    """``run("--host", …)``: a command that ends by itself; its exit code and output."""
    handlers, level = logging.root.handlers[:], logging.root.level

    def invoke(*words: str, stdin: str = "") -> tuple[int, str]:
        result = CliRunner().invoke(main, ["dashboard", *words], input=stdin, env={"DELAYQ_URL": redis_server.url})
        return result.exit_code, result.output

    yield invoke
    logging.root.handlers, logging.root.level = handlers, level


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_dashboard_stops_at_a_signal_while_a_browser_watches(start: Start, queue: Queue, number: signal.Signals):
    queue.send("hello", delay=60)
    process, url = start()
    page = httpx.get(url, timeout=120).text
    live = re.findall(r'data-stream="([^"]+)"', page)[0]
    with httpx.stream("GET", url.rstrip("/") + live, timeout=120) as stream:
        lines = stream.iter_lines()
        assert any('data-label="Scheduled">1<' in line for line in lines)
        process.send_signal(number)
        assert not [line for line in lines if "Traceback" in line]
    assert process.wait(120) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


def test_external_address_needs_a_login(run: Run):
    code, printed = run("--host", "0.0.0.0")
    assert code == 2
    assert (
        "--host 0.0.0.0 lets other machines connect, so users must log in: give --users-file, or a --token" in printed
    )


@pytest.mark.full
def test_other_host_name_on_loopback_is_refused_unless_allowed(start: Start, queue: Queue):
    queue.send("hello")
    _, url = start("--allow-host", "queues.example", "--token", "a token that is long enough")
    hosts = {"queues.example": 200, "localhost": 200, "evil.example": 421}
    assert {host: httpx.get(f"{url}login", headers={"host": host}, timeout=120).status_code for host in hosts} == hosts


def test_named_fields_are_hidden(start: Start, queue: Queue):
    queue.send({"password": "hunter2", "pin": 1234, "name": "Ann"}, delay=60)
    _, url = start("--redact", "password", "--redact", "pin")
    (path,) = set(re.findall(r'href="/([^"]*/queues/emails)"', httpx.get(url, timeout=120).text))
    page = unescape(httpx.get(f"{url}{path}/messages", timeout=120).text)
    assert '{"password":"[redacted]","pin":"[redacted]","name":"Ann"}' in page


def test_named_fields_are_hidden_in_results_of_tasks(start: Start, queue: Queue):
    @queue.task(results=60)
    def sign_in(password: str) -> dict[str, str]:
        message = current_message()
        assert message is not None
        if message.id == "fails":
            raise ValueError(f"password={password}")
        return {"password": password, "name": "Ann"}

    for name in ("works", "fails"):
        sign_in.options(id=name, max_retries=0).send("hunter2")
    Consumer(queue).drain()
    _, url = start("--redact", "password")
    (path,) = set(re.findall(r'href="/([^"]*/queues/emails)"', httpx.get(url, timeout=120).text))
    for name, printed in (("works", '"name": "Ann"'), ("fails", "password= [redacted]")):
        page = unescape(httpx.get(f"{url}{path}/messages/{name}", timeout=120).text)
        answer = httpx.get(f"{url}api/v1/servers/{path.replace('%25', '%')}/messages/{name}", timeout=120)
        assert printed in page, page
        assert answer.json()["result"]["arguments"] == {"password": "[redacted]"}
        assert "hunter2" not in page + answer.text


@pytest.mark.full
def test_other_loopback_address_is_a_valid_host_name(start: Start, queue: Queue):
    queue.send("hello")
    _, url = start("--host", "127.0.0.2")
    assert httpx.get(url, timeout=120).status_code == 200


@pytest.mark.parametrize(
    "given", ["/queues", *(pytest.param(given, marks=pytest.mark.full) for given in ("queues/", "/"))]
)
def test_root_path_starts_with_one_slash_and_ends_without(start: Start, queue: Queue, given: str):
    queue.send("hello")
    _, url = start("--root-path", given)
    below = "" if given == "/" else "/queues"
    assert f'href="{below}/static/style.css' in httpx.get(f"{url.removesuffix(f'{below}/')}/", timeout=120).text


def test_new_user_asks_for_a_password_and_prints_a_line(start: Start, run: Run, tmp_path: Path):
    code, line = run("--new-user", "ann", "--role", "viewer", stdin="correct horse\n")
    assert code == 0
    name, role, kept = line.strip().split(":")
    assert (name, role) == ("ann", "viewer")
    assert matches("correct horse", kept)
    assert not matches("correct house", kept)
    (tmp_path / "users.txt").write_text(line)
    _, url = start("--users-file", str(tmp_path / "users.txt"))
    assert 'name="name"' in httpx.get(f"{url}login", timeout=120).text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--token", "short"], "the token has 5 characters, but needs 16"),
        (["--new-user", "a:b"], "user name 'a:b' is empty, starts with #, or contains a colon"),
        (["--url", "west=redis://a", "--url", "redis://b"], "give --url NAME=URL for each"),
        (["--url", "a=redis://a", "--url", "a=redis://b"], "two servers have the same name"),
        (["--url", "redis://a", "--url", "redis://:x@a/0"], "the server a is given twice"),
        (["--url", "http://a"], "has an unknown scheme; expected one of redis://"),
        (["--prefix", "a{b"], "contains '{'"),
        *((["--behind", each], "is not the address of a proxy") for each in ("*", "0.0.0.0/0", "::/0", "nginx", "")),
        (["--behind", "10.0.0.1,*"], "'*' is not the address of a proxy"),
        (["--behind", "10.0.0.1/8"], "'10.0.0.1/8' is not the address of a proxy"),
        (["--host", "300.1.1.1", "--token", "a token that is long enough"], "cannot listen on 300.1.1.1"),
    ],
)
def test_bad_input_is_named_with_a_remedy(run: Run, words: list[str], expected: str):
    code, output = run(*words, stdin="a password\n")
    assert code in {1, 2}
    assert expected in output


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(
    "variable",
    [str(each.envvar) for each in dashboard.params if each.envvar not in {None, "DELAYQ_URL", "DELAYQ_LOG_LEVEL"}],
)
def test_variable_that_is_set_but_empty_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
):
    """Otherwise a secret that does not exist would open the dashboard, or show what it should hide."""
    monkeypatch.setattr("delayq.cli.dashboard._serve", lambda _, listening, *__: listening.close())
    monkeypatch.setenv(variable, value)
    code, printed = run("--port", "0")
    assert (code, f"{variable} is empty" in printed) == (2, True), printed
    assert run("--port", "0", "--token", "a token that is long enough", "--redact", "x")[0] == 0


def test_port_in_use_is_reported(run: Run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, printed = run("--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "choose another --port" in printed


def test_token_argument_causes_a_warning(run: Run):
    words = ("--host", "300.1.1.1", "--token", "a token that is long enough")
    warning = "other users of this machine can see --token in the list of processes: set DELAYQ_DASHBOARD_TOKEN"
    assert warning in run(*words)[1]
    assert warning not in run(*words[:2])[1]
