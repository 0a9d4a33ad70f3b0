"""delayq as the first process of a container: it gets signals from its start on, and leaves no zombies; and SIGHUP."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import Queue
from tests.cli.conftest import Start, followed
from tests.harness.proc import children
from tests.harness.waiting import eventually

COMMAND = str(Path(sys.executable).parent / "delayq")
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.fixture(params=[[COMMAND], [sys.executable, "-m", "delayq"]], ids=["command", "module"])
def first(request: pytest.FixtureRequest) -> list[str]:
    """What starts delayq as the first process of a namespace of its own."""
    if not shutil.which("unshare") or subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces for processes can be made here")
    return [*NAMESPACE, *request.param]


def inside(process: subprocess.Popen[str]) -> int:
    """The first process within the namespace."""
    assert eventually(lambda: bool(children(process.pid)), seconds=60)
    return children(process.pid)[0]


def zombies(pid: int) -> list[str]:
    """The names of children of a process that have ended, and of which it has taken no note."""
    found = [each.read_text().split(")") for each in Path("/proc").glob("[0-9]*/stat")]
    return [name for name, fields in found if fields.split()[:2] == ["Z", str(pid)]]


@pytest.mark.full
def test_signal_while_modules_are_imported_ends_it(first: list[str], start: Start, tmp_path: Path):
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(600)\n")
    process = start("consume", "slow:queue", program=first)
    pid = inside(process)
    assert eventually((tmp_path / "begun").exists, seconds=60)
    os.kill(pid, signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM


@pytest.mark.full
def test_processes_that_programs_leave_behind_do_not_become_zombies(
    first: list[str], start: Start, queue: Queue, tmp_path: Path
):
    for number in range(5):
        queue.send(number)
    leaves = f"sleep 0.3 & setsid sleep 0.3 & (sleep 1; touch {tmp_path}/last) &"
    process = start("consume", "emails", "--exec", leaves, program=first)
    pid = inside(process)
    assert eventually(lambda: queue.stats().acked == 5, seconds=60)
    assert eventually((tmp_path / "last").exists, seconds=60)
    assert eventually(lambda: not zombies(pid), seconds=60), zombies(pid)
    os.kill(pid, signal.SIGTERM)
    assert process.wait(120) == 0


@pytest.mark.parametrize(
    ("code", "expected"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 128 + 9), ("time.sleep(600)", 128 + 15)]
)
def test_first_process_passes_signals_on_and_exits_like_its_command(code: str, expected: int):
    program = f"import _delayq_command, os, sys, time\n_delayq_command.run_apart()\nprint('begun', flush=True)\n{code}"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        if "sleep" in code:
            process.send_signal(signal.SIGTERM)
        assert process.wait(120) == expected


@pytest.fixture
def takes_hangups() -> Iterator[None]:
    """What the tests start does not ignore SIGHUP, although `nohup` may have started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("takes_hangups")
@pytest.mark.parametrize("many", [[], ["--processes", "2"]], ids=["one process", "two processes"])
def test_hangup_ends_a_consumer_in_good_order(start: Start, queue: Queue, many: list[str], tmp_path: Path):
    queue.send("x")
    process = start("consume", "emails", "--exec", f"touch {tmp_path}/begun; sleep 1; echo done", *many)
    lines = followed(process)
    assert eventually((tmp_path / "begun").exists, seconds=60)
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == 0, lines
    assert process.stdout is not None
    assert process.stdout.read() == "done\n"
    assert (queue.stats().acked, queue.stats().unack) == (1, 0)


def test_ignored_hangup_does_not_end_a_consumer(start: Start, queue: Queue, tmp_path: Path):
    queue.send("x")
    words = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", COMMAND]
    process = start("consume", "emails", "--exec", f"touch {tmp_path}/begun", program=words)
    assert eventually((tmp_path / "begun").exists, seconds=60)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    assert process.wait(120) == 0
