"""Fixtures: the command line as a user runs it, on a private server.

invoke    runs a command in this process: the first choice, since a process costs half a second
delayq    runs a command to its end, in a process of its own
start     starts one that goes on: `consume`
write     makes a file for send --file
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
import structlog
from click.testing import CliRunner, Result
from delayq.cli import main

from delayq import Queue
from tests.harness.lines import Write
from tests.harness.proc import children
from tests.harness.servers import PATIENT, RedisServer

Run = Callable[..., "subprocess.CompletedProcess[Any]"]
Start = Callable[..., "subprocess.Popen[str]"]
Invoke = Callable[..., Result]


def ended(pid: int) -> bool:
    """Whether a process is gone, or is a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except ProcessLookupError:
        return True
    except FileNotFoundError:
        return Path("/proc/self").exists()  # it has ended; or it is alive, on a system without /proc


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Let each file that this process opens have a number that `select.select` refuses."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(before[1], 4096)), before[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def followed(process: subprocess.Popen[str]) -> list[str]:
    """The lines that a process writes to stderr, as they arrive."""
    lines: list[str] = []

    def follow() -> None:
        assert process.stderr is not None
        with contextlib.suppress(ValueError):  # it is closed at the end of the test
            lines.extend(process.stderr)

    threading.Thread(target=follow, daemon=True).start()
    return lines


def read_all(control: int) -> str:
    """Everything written to a terminal until its last user is gone; then close `control`."""
    shown = b""
    with os.fdopen(control, "rb", buffering=0) as terminal, contextlib.suppress(OSError):  # how Linux reports the end
        while part := terminal.read(65_536):
            shown += part
    return shown.decode()


COMMAND = [sys.executable, "-m", "delayq.cli"]
SECONDS = 120  # for a command that should take one; the machine may be busy


@pytest.fixture
def server(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[RedisServer]:
    """The shared server, with a setting that prevents the warning about missing persistence."""
    redis_client.config_set("save", "3600 1")
    yield redis_server
    redis_client.config_set("save", "")


@pytest.fixture
def environment(server: RedisServer, tmp_path: Path) -> dict[str, str]:
    """The environment of the commands, without settings of the caller of pytest."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
    url = f"{server.url}?socket_timeout={PATIENT['socket_timeout']}"
    return kept | {"DELAYQ_URL": url, "DELAYQ_HOME": str(tmp_path / "store"), "COLUMNS": "100", "TZ": "UTC"}


@pytest.fixture
def queue(server: RedisServer) -> Iterator[Queue]:
    """The queue emails, which most commands here use."""
    with Queue("emails", url=server.url, shards=None) as queue:
        yield queue


@pytest.fixture
def delayq(environment: dict[str, str], tmp_path: Path) -> Run:
    """``delayq("send", "emails", "hello", input=…, env=…)``: run in the test's folder, output as text.

    A variable that is None in `env` is not set.
    """

    def run(
        *words: str, env: dict[str, str | None] | None = None, program: Sequence[str] = COMMAND, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        defaults: dict[str, Any] = {"capture_output": True, "text": True, "timeout": SECONDS, "cwd": tmp_path}
        defaults["env"] = {name: value for name, value in (environment | (env or {})).items() if value is not None}
        done: subprocess.CompletedProcess[Any] = subprocess.run([*program, *words], check=False, **defaults | options)
        return done

    return run


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """``start("consume", …)``: a Popen, killed after the test if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, program: Sequence[str] = COMMAND, **options: Any) -> subprocess.Popen[str]:
        defaults: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
        process: subprocess.Popen[str] = subprocess.Popen(
            [*program, *words], **defaults | {"env": environment} | options
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        # Without its supervisor, a consumer would go on for a second, and could take a message of the next test.
        consumers = children(process.pid) if process.poll() is None else []
        process.kill()
        process.wait()
        for pid in consumers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
            stream.close()


@pytest.fixture
def invoke(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Invoke]:
    """``invoke("send", "emails", "hello", input=…, env=…)``: click's Result, with stdout, stderr and exit_code.

    The command runs in the test's folder, and imports modules from it afresh. A program of --exec writes where this
    process does: the fixture ``capfd`` has it.
    """
    root, own = logging.getLogger(), logging.getLogger("delayq")
    handlers, level, own_level = list(root.handlers), root.level, own.level
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a rewritten module may have the same second and size

    def call(*words: str, env: dict[str, str | None] | None = None, **options: Any) -> Result:
        importlib.invalidate_caches()
        path, imported = list(sys.path), set(sys.modules)
        try:
            return CliRunner().invoke(main, words, env=environment | (env or {}), prog_name="delayq", **options)
        finally:
            sys.path[:] = path
            forget_modules(sys.modules.keys() - imported, tmp_path)

    yield call
    root.handlers[:] = handlers
    root.setLevel(level)
    own.setLevel(own_level)
    logging.getLogger("delayq.server").setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)  # as completion does, which must stay silent
    structlog.reset_defaults()


def forget_modules(names: set[str], folder: Path) -> None:
    """Unload those of the modules that were imported from a folder, and close their queues."""
    for name in names:
        module = sys.modules.get(name)  # a thread of the command may have unloaded it
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
            for each in vars(module).values():
                if isinstance(each, Queue):
                    each.close()
            sys.modules.pop(name, None)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write(lines)``: write emails.jsonl from objects or raw lines."""

    def make(lines: list[Any]) -> Path:
        path = tmp_path / "emails.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

    return make
