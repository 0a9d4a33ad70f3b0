"""Completion in a real bash on a terminal, installed as the help says; and what is completed, and when not."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from delayq.cli import candidates

from delayq import Queue, Topic
from tests.cli.conftest import Invoke, Run
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

TASKS = """
import pathlib
import delayq
from delayq import Queue, Topic

pathlib.Path("ran").touch()
emails = Queue("emails")
orders: Queue = delayq.Queue("orders")
other = dict()
"""
# A machine that stands still for a second is no server that does not answer.
PATIENT = [
    sys.executable,
    "-c",
    "from delayq.cli import candidates, main; candidates.SECONDS = 120.0; main(prog_name='delayq')",
]
TO_THE_BEGINNING, TO_THE_END = "\x01", "\x05"  # of the line: Ctrl-A, Ctrl-E

Offered = Callable[..., list[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's environment, with ``delayq`` on the PATH and a recognizable prompt."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "delayq"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PATIENT)} "$@"\n')
    program.chmod(0o755)
    (home / ".bashrc").write_text("PS1='ready> '\nset +o history\n")
    (tmp_path / "tasks.py").write_text(TASKS)
    return home


class Bash:
    """An interactive bash on its own terminal."""

    def __init__(self, home: Path, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._terminal, inner = pty.openpty()
        path = f"{home / 'bin'}:{environment['PATH']}"
        self._process = subprocess.Popen(
            ["bash"],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env=environment | {"HOME": str(home), "PATH": path, "TERM": "dumb", "INPUTRC": "/dev/null"},
            start_new_session=True,
        )
        os.close(inner)
        self._shown = ""
        threading.Thread(target=self._read, daemon=True).start()
        self._prompts = 0
        self._await_prompt()

    def _read(self) -> None:
        try:
            while text := os.read(self._terminal, 4096):
                self._shown += text.decode(errors="replace")
        except OSError:
            pass  # how a terminal reports its end

    def _await_prompt(self) -> None:
        self._prompts += 1
        assert eventually(lambda: self._shown.count("ready> ") >= self._prompts), self._shown

    def run(self, line: str) -> None:
        os.write(self._terminal, f"{line}\n".encode())
        self._await_prompt()

    def completed(self, line: str) -> list[str]:
        """The words of a line after pressing TAB at its end."""
        (self.folder / "words").unlink(missing_ok=True)
        self._prompts = self._shown.count("ready> ")
        ask = f"{line}\t{TO_THE_BEGINNING}printf '%s\\n' {TO_THE_END} > part; mv part words\n"
        os.write(self._terminal, ask.encode())
        assert eventually((self.folder / "words").exists)
        return (self.folder / "words").read_text().splitlines()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture
def bash(home: Path, tmp_path: Path, environment: dict[str, str], invoke: Invoke) -> Iterator[Bash]:
    """A bash in which completion is installed with the line of the help."""
    line = re.search(r"^ +bash +(.*)$", invoke("completion", "--help").stdout, re.MULTILINE)
    assert line
    bash = Bash(home, tmp_path, environment)
    bash.run(line[1])
    yield bash
    bash.end()


@pytest.fixture
def offered(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """``offered("delayq peek ")``: the completions that bash gets at the end of this line, without errors."""

    def ask(line: str, seconds: float = 120.0, **env: str | None) -> list[str]:
        monkeypatch.setattr(candidates, "SECONDS", seconds)
        asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_WORDS": line, "COMP_WORDBREAKS": " :="}
        done = invoke(env=asked | {"_DELAYQ_COMPLETE": "bash_complete"} | env)
        assert (done.exit_code, done.stderr) == (0, "")
        return [word.removeprefix("plain,") for word in done.stdout.splitlines() if word]

    return ask


@pytest.mark.full
def test_bash_completes_what_is_typed(bash: Bash, queue: Queue):
    queue.send("payload", id="order-42", delay=3600)
    queue.send("payload", id="shop:7", delay=3600)
    for typed, whole in {
        "delayq pee": "delayq peek",
        "delayq dead req": "delayq dead requeue",
        "delayq peek --lim": "delayq peek --limit",
        "delayq peek ema": "delayq peek emails",
        "LANG=C delayq peek ema": "LANG=C delayq peek emails",
        "delayq peek emails --state pen": "delayq peek emails --state pending",
        "delayq peek emails --state=pen": "delayq peek emails --state=pending",
        "delayq show emails ord": "delayq show emails order-42",
        "delayq cancel emails shop:": "delayq cancel emails shop:7",
        "delayq consume tasks:e": "delayq consume tasks:emails",
        "delayq consume tasks:emails tasks:o": "delayq consume tasks:emails tasks:orders",
        "delayq consume --exec cat em": "delayq consume --exec cat emails",
        "delayq completion f": "delayq completion fish",
    }.items():
        assert bash.completed(typed) == whole.split()
    assert not (bash.folder / "ran").exists()  # the module was read, not run


def test_script_of_each_shell_is_printed(invoke: Invoke):
    for shell, mark in {"bash": "complete -o", "zsh": "#compdef delayq", "fish": "--command delayq"}.items():
        done = invoke("completion", shell)
        assert (done.exit_code, done.stderr) == (0, "")
        assert mark in done.stdout
        assert f"_DELAYQ_COMPLETE={shell}_complete" in done.stdout


def test_script_and_program_use_the_same_variable(delayq: Run, queue: Queue):
    queue.send("payload")
    line = {"COMP_LINE": "delayq peek em", "COMP_POINT": "14", "COMP_WORDS": "delayq peek em", "COMP_WORDBREAKS": " :="}
    done = delayq(env=line | {"_DELAYQ_COMPLETE": "bash_complete"}, program=PATIENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain,emails\n", "")


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"_DELAYQ_COMPLETE": "zsh_complete", "COMP_WORDS": "delayq peek em", "COMP_CWORD": "2"}, "plain\nemails\n_\n"),
        ({"_DELAYQ_COMPLETE": "fish_complete", "COMP_WORDS": "delayq peek em", "COMP_CWORD": "em"}, "plain,emails\n"),
    ],
)
def test_other_shells_get_the_same_completions(
    asked: dict[str, str], answer: str, invoke: Invoke, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(candidates, "SECONDS", 120.0)
    queue.send("payload")
    done = invoke(env=asked)
    assert (done.exit_code, done.stdout, done.stderr) == (0, answer, "")


def test_unknown_shell_is_refused(invoke: Invoke):
    done = invoke("completion", "tcsh")
    assert done.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr


def test_ids_are_those_that_the_command_can_use(offered: Offered, queue: Queue):
    queue.send("payload", id="waiting", delay=3600)
    queue.send("payload", id="failing", max_retries=0)
    (message,) = queue.receive()
    message.reject("no good")
    queue.send("payload", id="running")
    queue.receive()
    assert offered("delayq reschedule emails ") == ["waiting"]
    assert offered("delayq now emails ") == ["waiting"]
    assert offered("delayq dead show emails ") == ["failing"]
    assert offered("delayq dead requeue emails failing ") == ["failing"]
    assert offered("delayq dead edit emails ") == ["failing"]
    assert offered("delayq dead bury emails ") == ["waiting"]
    assert offered("delayq show emails ") == ["failing", "running", "waiting"]
    assert offered("delayq show emails wai") == ["waiting"]
    assert offered("delayq show nothing ") == []


def test_sent_names_cannot_become_a_command(offered: Offered, queue: Queue):
    for message_id in ("$(touch x)", "a b", "a;b", "`x`", "-x", "*", "plain"):
        queue.send("payload", id=message_id, delay=3600)
    assert offered("delayq show emails ") == ["plain"]


@pytest.mark.parametrize("line", ["delayq peek ", "delayq show emails ", "delayq consume --exec true "])
def test_without_a_server_completion_is_empty_and_silent(line: str, offered: Offered, tmp_path: Path):
    assert offered(line, DELAYQ_URL="redis://127.0.0.1:1") == []
    assert offered(line, DELAYQ_URL="nonsense://") == []
    assert offered(line, DELAYQ_URL=f"unix://{tmp_path}/none.sock") == []


def test_completion_does_not_wait_for_a_server_that_does_not_answer(offered: Offered, tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        assert offered("delayq peek ", seconds=candidates.SECONDS, DELAYQ_URL=f"unix://{tmp_path}/silent.sock") == []
        silent.setblocking(False)
        with contextlib.ExitStack() as kept:  # a connection that is closed would be retried
            with contextlib.suppress(BlockingIOError):
                kept.enter_context(silent.accept()[0])
            with pytest.raises(BlockingIOError):  # there was no second attempt
                silent.accept()


def test_embedded_store_is_used_if_it_exists_and_is_not_created(offered: Offered, invoke: Invoke, tmp_path: Path):
    folder = tmp_path / "shop"
    assert offered("delayq peek ", DELAYQ_URL=None, DELAYQ_HOME=str(folder)) == []
    assert offered(f"delayq peek --url embedded://{folder} ") == []
    assert not folder.exists()
    assert invoke("send", "orders", "payload", "--url", f"embedded://{folder}").exit_code == 0
    assert offered("delayq peek ", DELAYQ_URL=None, DELAYQ_HOME=str(folder)) == ["orders"]
    assert offered(f"delayq peek --url embedded://{folder} ") == ["orders"]


def test_targets_are_found_in_packages_but_not_in_installed_code(offered: Offered, tmp_path: Path):
    for name in ("app/__init__.py", "app/jobs/mail.py", ".venv/lib/tasks.py", "my-scripts.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(TASKS)
    (tmp_path / "broken.py").write_text("emails = Queue(")
    modules = ["app.jobs.mail", "app", "my-scripts"]
    assert offered("delayq consume ") == [f"{module}:{name}" for module in modules for name in ("emails", "orders")]
    assert not (tmp_path / "ran").exists()


def test_topics_and_their_groups_are_completed(offered: Offered, queue: Queue, server: RedisServer):
    queue.send("payload")
    with Topic("orders", url=server.url, shards=2) as topic:
        topic.group("billing")
        topic.group("a b")
    assert offered("delayq topic read ") == ["orders"]
    assert offered("delayq topic unacked orders ") == ["billing"]
    assert offered("delayq topic claim orders b") == ["billing"]
    assert offered("delayq topic unacked nothing ") == []
    assert offered("delayq peek ") == ["emails"]


def test_ledgers_are_completed_by_queue_name(offered: Offered, queue: Queue, server: RedisServer):
    queue.send("payload")
    queue.events.group("audit")
    with Topic("orders", url=server.url) as topic:
        topic.group("billing")
    assert offered("delayq topic read --ledger ") == ["emails"]
    assert offered("delayq topic unacked --ledger emails ") == ["audit"]
    assert offered("delayq topic unacked emails ") == []
