"""After kill -9 of a consumer, nothing that runs its messages is alive, so none runs beside its next delivery."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from delayq import Queue
from delayq.runtime.group_watcher import GroupWatcher
from tests.cli.conftest import Start, ended
from tests.harness.proc import children, needs_proc
from tests.harness.waiting import eventually

# A shell and its child, which both ignore every signal that can be ignored.
STUBBORN = "trap '' TERM INT HUP IO; echo $$ >> {0}/pids; (sleep 300 & echo $! >> {0}/pids; wait); sleep 300"

MODULE = """
import subprocess, time
from delayq import Queue, aio

emails = {queue}("emails")

@emails.handler
{kind} deliver(message):
    subprocess.Popen(["/bin/sh", "-c", {program!r}]).wait()
"""


def written(folder: Path) -> Callable[[], bool]:
    return lambda: (folder / "pids").exists() and len((folder / "pids").read_text().split()) >= 2


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def has_children(pid: int) -> bool:
    return bool(children(pid))


def way(name: str, folder: Path) -> list[str]:
    """Return the words of `consume` for a way of running handlers."""
    program = STUBBORN.format(folder)
    if name.startswith("exec"):
        return ["emails", "--exec", program, *(["--processes", "2"] if name == "exec-processes" else [])]
    (folder / "app.py").write_text(MODULE.format(queue="Queue", kind="def", program=program))
    options = {"pool": ["--pool", "process"], "processes": ["--processes", "2"], "reload-pool": ["--pool", "process"]}
    return ["app:emails", *options[name], *(["--reload"] if name.startswith("reload") else [])]


@needs_proc
@pytest.mark.parametrize("name", ["exec", "pool"])
def test_killed_consumer_leaves_nothing_running(name: str, start: Start, queue: Queue, tmp_path: Path):
    queue.send("payload")
    consumer = start("consume", *way(name, tmp_path), stderr=None)
    assert eventually(written(tmp_path))
    started = [*pids(tmp_path), *children(consumer.pid)]
    consumer.kill()
    assert eventually(lambda: all(map(ended, started)))


@needs_proc
@pytest.mark.full
@pytest.mark.parametrize("name", ["exec-processes", "processes"])
def test_killed_process_of_a_supervisor_leaves_nothing_running(name: str, start: Start, queue: Queue, tmp_path: Path):
    queue.send("payload")
    supervisor = start("consume", *way(name, tmp_path), stderr=None)
    assert eventually(written(tmp_path))
    program, *_ = started = pids(tmp_path)
    workers = children(supervisor.pid)
    for worker in workers:
        if name == "processes" or program in children(worker):
            os.kill(worker, signal.SIGKILL)
    assert eventually(lambda: all(map(ended, started)))
    assert supervisor.poll() is None


@needs_proc
@pytest.mark.full
@pytest.mark.parametrize("name", ["exec-processes", "reload-pool"])
def test_killed_supervisor_leaves_nothing_running(name: str, start: Start, queue: Queue, tmp_path: Path):
    """Its consumers end in good order: they first wait for their handlers."""
    queue.send("payload")
    words = way(name, tmp_path)
    supervisor = start("consume", *words, "--shutdown-timeout", "500ms", stderr=None)
    assert eventually(written(tmp_path))
    started = [*pids(tmp_path), *children(supervisor.pid)]
    supervisor.kill()
    assert eventually(lambda: all(map(ended, started)))


@needs_proc
def test_message_of_a_killed_consumer_does_not_run_beside_itself(start: Start, queue: Queue, tmp_path: Path):
    """The program notes a run beside it by a folder that only one can make."""
    program = f"mkdir {tmp_path}/running || touch {tmp_path}/twice; echo $$ >> {tmp_path}/pids; sleep 300"
    queue.send("payload")
    first = start("consume", "emails", "--exec", program, "--lease", "1s", stderr=None)
    assert eventually((tmp_path / "pids").exists)
    first.kill()
    (program_id,) = pids(tmp_path)
    assert eventually(lambda: ended(program_id))
    (tmp_path / "running").rmdir()
    start("consume", "emails", "--exec", program, "--lease", "1s", stderr=None)
    assert eventually(lambda: len(pids(tmp_path)) == 2)
    assert not (tmp_path / "twice").exists()


@needs_proc
def test_consumer_killed_while_it_starts_a_program_leaves_nothing_running(tmp_path: Path):
    """At any moment of the start."""
    for shot in range(20):
        (tmp_path / "pids").unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                watcher = GroupWatcher()
                watcher.start("true").wait()
                watcher.start(f"echo $$ >> {tmp_path}/pids; sleep 300")
                time.sleep(600)
            finally:
                os._exit(1)
        assert eventually(partial(has_children, child))
        time.sleep(shot * 0.0005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        time.sleep(0.02)
        if (tmp_path / "pids").exists():
            assert eventually(lambda: all(map(ended, pids(tmp_path))))


@needs_proc
def test_watcher_that_is_killed_while_a_program_starts_does_not_end_it(monkeypatch: pytest.MonkeyPatch):
    watcher = GroupWatcher()
    gone = watcher._running()
    gone._process.kill()
    gone._process.wait()
    monkeypatch.setattr(watcher, "_running", lambda: gone)
    assert watcher.start("exit 3").wait(60) == 3
    assert watcher.start("kill -s PIPE $$").wait(60) == -signal.SIGPIPE  # as for a program that others start


@needs_proc
def test_watcher_that_was_killed_is_replaced_and_knows_the_running_programs():
    watcher = GroupWatcher()
    first = watcher.start("sleep 300")
    assert watcher._watcher is not None
    watcher._watcher._process.kill()
    watcher._watcher._process.wait()
    second = watcher.start("sleep 300")
    third = watcher.start("true")
    third.wait()
    watcher.forget(third.pid)
    watcher._watcher.end()  # as at the end of this process
    assert first.wait(60) == second.wait(60) == -signal.SIGKILL


@pytest.mark.usefixtures("many_open_files")
def test_programs_of_a_process_with_many_open_files_end_with_it():
    watcher = GroupWatcher()
    program = watcher.start("sleep 300")
    assert watcher._watcher is not None
    watcher._watcher.end()  # as at the end of this process
    try:
        assert program.wait(60) == -signal.SIGKILL
    finally:
        program.kill()


@needs_proc
def test_consumer_that_ends_does_not_wait_for_what_a_program_left_running(start: Start, queue: Queue, tmp_path: Path):
    queue.send("payload")
    program = f"sleep 300 & echo $! > {tmp_path}/pids"
    consumer = start("consume", "emails", "--exec", program, "--max-messages", "1", stderr=None)
    assert consumer.wait(120) == 0
    (left,) = pids(tmp_path)
    assert not ended(left)
    os.kill(left, signal.SIGKILL)
