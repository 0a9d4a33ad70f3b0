"""consume --reload: the consumer restarts when a Python file in the folder changes, and loses nothing."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from delayq.cli.consume.reload import own

from delayq import Queue
from delayq.model.extras import install
from tests.cli.conftest import Invoke, Start, ended, followed
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

SECOND = 1_700_000_000
VERSION = 'VERSION = "first"\n'
TASKS = """
import os, pathlib, time
from delayq import Queue
from version import VERSION

emails = Queue("emails")
orders = Queue("orders")

@emails.handler
@orders.handler
def deliver(message):
    if message.payload == "slow":
        pathlib.Path("started").touch()
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
    with open("handled", "a") as file:
        file.write(f"{message.queue} {message.payload} {VERSION} {message.attempt} {os.getpid()}\\n")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """A project: the module with the queues, and a module that it imports."""
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "version.py").write_text(VERSION)
    os.utime(tmp_path / "version.py", (SECOND, SECOND))
    return tmp_path


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    """Python's default: imported modules are compiled to files."""
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Reloading:
    """A consumer with --reload, in the foreground of its own terminal."""

    def __init__(self, start: Start, folder: Path, *words: str) -> None:
        self.process = start("consume", "--reload", *words, process_group=0)
        self.log = followed(self.process)
        self.folder = folder

    def has_logged(self, text: str, times: int = 1) -> bool:
        return eventually(lambda: sum(text in line for line in self.log) >= times)

    def pids(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"consumer process started .*pid=(\d+)", "".join(self.log))]

    def handled(self) -> list[list[str]]:
        path = self.folder / "handled"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def press_ctrl_c(self) -> int:
        """Send the signal to all foreground processes, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(120)


@pytest.fixture
def reloading(start: Start, folder: Path) -> Callable[..., Reloading]:
    """``reloading("tasks:emails", …)``: a started consumer with --reload."""

    def begin(*words: str, consumers: int = 1) -> Reloading:
        consumer = Reloading(start, folder, *words)
        assert consumer.has_logged("consumer started", consumers)
        return consumer

    return begin


Begin = Callable[..., Reloading]


def test_changed_file_restarts_the_consumer_and_ctrl_c_ends_it(reloading: Begin, queue: Queue, folder: Path):
    consumer = reloading("tasks:emails")
    queue.send("one")
    assert eventually(lambda: queue.stats().acked == 1)
    (folder / "version.py").write_text(VERSION.replace("first", "other"))
    os.utime(folder / "version.py", (SECOND, SECOND))  # like a user who saves twice within a second
    assert consumer.has_logged("consumer started", 2)
    queue.send("two")
    assert eventually(lambda: queue.stats().acked == 2)
    assert [words[1:3] for words in consumer.handled()] == [["one", "first"], ["two", "other"]]
    assert consumer.press_ctrl_c() == 0
    assert all(map(ended, consumer.pids()))
    assert "Traceback" not in "".join(consumer.log)


@pytest.mark.full
def test_running_messages_finish_and_others_are_handed_back(reloading: Begin, queue: Queue, folder: Path):
    consumer = reloading("tasks:emails", "--concurrency", "1")
    queue.send("slow")
    assert eventually((folder / "started").exists)
    for number in range(20):
        queue.send(number)
    (folder / "version.py").write_text(VERSION.replace("first", "second"))
    assert consumer.has_logged("restarting changed=version.py")
    (folder / "go").touch()
    assert consumer.has_logged("consumer started", 2)
    queue.send("last")
    assert eventually(lambda: queue.stats().acked == 22)
    handled = consumer.handled()
    assert handled[0][1:3] == ["slow", "first"]
    assert [words[2] for words in handled if words[1] == "last"] == ["second"]
    assert sorted(words[1] for words in handled) == sorted(["slow", "last", *map(str, range(20))])
    assert {words[3] for words in handled} == {"1"}  # each one's first attempt
    assert queue.stats().nacked == queue.stats().lease_lost == 0
    assert consumer.press_ctrl_c() == 0


@pytest.mark.full
@pytest.mark.parametrize("processes", ["1", "2"])
def test_syntax_error_is_logged_until_the_file_is_fixed(processes: str, reloading: Begin, queue: Queue, folder: Path):
    count = int(processes)
    consumer = reloading("tasks:emails", "--processes", processes, consumers=count)
    (folder / "version.py").write_text("VERSION = (\n")
    assert consumer.has_logged("delayq: cannot import 'tasks': SyntaxError: '(' was never closed (")
    assert consumer.has_logged("consumer ended, waiting for a change exit_code=2")
    queue.send("waits")
    (folder / "version.py").write_text(VERSION.replace("first", "mended"))
    assert consumer.has_logged("consumer started", 2 * count)
    assert eventually(lambda: queue.stats().acked == 1)
    assert [words[1:4] for words in consumer.handled()] == [["waits", "mended", "1"]]
    assert consumer.press_ctrl_c() == 0


@pytest.mark.full
def test_ctrl_c_ends_it_while_it_waits_for_a_fix(start: Start, folder: Path):
    (folder / "tasks.py").write_text("1 / 0\n")
    consumer = Reloading(start, folder, "tasks:emails")
    assert consumer.has_logged("consumer ended, waiting for a change")
    assert "ZeroDivisionError: division by zero" in "".join(consumer.log)
    assert consumer.press_ctrl_c() == 0
    assert "Traceback" not in "".join(consumer.log)


@pytest.mark.full
def test_ctrl_c_during_the_start_ends_the_consumer_without_a_traceback(start: Start, folder: Path):
    consumer = Reloading(start, folder, "tasks:emails")
    assert consumer.has_logged("consumer process started")
    assert consumer.press_ctrl_c() == 0
    assert all(map(ended, consumer.pids()))
    assert "Traceback" not in "".join(consumer.log)


@pytest.mark.full
def test_second_ctrl_c_does_not_wait_for_running_messages_before_a_restart(
    reloading: Begin, queue: Queue, folder: Path
):
    consumer = reloading("tasks:emails")
    queue.send("slow")
    assert eventually((folder / "started").exists)
    (folder / "version.py").write_text(VERSION.replace("first", "second"))
    assert consumer.has_logged("restarting")
    assert consumer.process.poll() is None
    assert eventually(lambda: _pressed(consumer))
    assert all(map(ended, consumer.pids()))
    assert queue.stats().unack == 1  # it is redelivered when its lease ends


def _pressed(consumer: Reloading) -> bool:
    """Press Ctrl-C again, as an impatient user does; return whether that ended it."""
    if consumer.process.poll() is None:
        os.killpg(consumer.process.pid, signal.SIGINT)
    return consumer.process.poll() is not None


@pytest.mark.full
def test_several_targets_in_several_processes_restart_together(
    reloading: Begin, queue: Queue, server: RedisServer, folder: Path
):
    consumer = reloading("tasks:emails", "tasks:orders", "-p", "2", consumers=2)
    (folder / "version.py").write_text(VERSION.replace("first", "second"))
    assert consumer.has_logged("consumer started", 4)
    with Queue("orders", url=server.url) as orders:
        orders.send("payload")
        queue.send("payload")
        assert eventually(lambda: orders.stats().acked == queue.stats().acked == 1)
    assert sorted(words[:3] for words in consumer.handled()) == [
        [name, "payload", "second"] for name in ("emails", "orders")
    ]
    # Two per restart; a half-written file may cause one more. A child may be faster than the log line about it.
    assert eventually(lambda: len(set(consumer.pids())) >= 4)
    assert consumer.press_ctrl_c() == 0
    assert all(map(ended, consumer.pids()))


@pytest.mark.full
def test_other_files_restart_nothing(reloading: Begin, folder: Path):
    foreign = [".venv/lib/x.py", ".git/x.py", "__pycache__/x.py", "app/.cache/x.py", "env/site-packages/x.py", "x.txt"]
    for name in [*foreign, "app/mail.py"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    consumer = reloading("tasks:emails")
    for name in foreign:
        (folder / name).write_text("changed")
    (folder / "app" / "mail.py").write_text("changed")
    assert consumer.has_logged("consumer started", 2)
    assert {line.split()[-1] for line in consumer.log if "restarting" in line} == {"changed=app/mail.py"}
    assert consumer.press_ctrl_c() == 0


@pytest.mark.full
def test_consumer_of_a_killed_reloader_ends(reloading: Begin):
    consumer = reloading("tasks:emails")
    assert consumer.has_logged("consumer process started")
    consumer.process.kill()
    assert eventually(lambda: all(map(ended, consumer.pids())))


@pytest.mark.full
def test_consumer_that_has_finished_restarts_on_the_next_change(reloading: Begin, queue: Queue, folder: Path):
    consumer = reloading("tasks:emails", "--burst")
    assert consumer.has_logged("consumer ended, waiting for a change exit_code=0")
    queue.send("payload")
    (folder / "version.py").touch()
    assert eventually(lambda: queue.stats().acked == 1)
    assert consumer.press_ctrl_c() == 0


def test_reload_of_a_program_is_refused(invoke: Invoke):
    program, name = invoke("consume", "--reload", "emails", "--exec", "true"), invoke("consume", "--reload", "emails")
    assert (program.exit_code, name.exit_code) == (2, 2)
    assert "--reload needs MODULE:QUEUE" in program.stderr
    assert "'emails' is not MODULE:QUEUE" in name.stderr


def test_missing_package_is_reported_with_the_command_to_install_it(invoke: Invoke, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    result = invoke("consume", "tasks:emails", "--reload")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"delayq: --reload needs the package watchfiles: {install('reload')}")


def test_hidden_folder_may_be_the_project():
    folder = Path("/home/ann/.work/site-packages")
    assert own(folder / "app" / "tasks.py", folder) == "app/tasks.py"
    assert own(folder / "app" / ".#tasks.py", folder) is None
    assert own(Path("/home/ann/tasks.py"), folder) is None
