"""consume --processes: several processes under a supervisor."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke, Run, Start, ended, followed
from tests.harness.proc import children, needs_proc
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def test_processes_share_the_work_and_end_together(start: Start, queue: Queue, tmp_path: Path):
    pids = tmp_path / "pids"
    program = f"echo $PPID >> {pids}; until [ $(sort -u {pids} | wc -l) -ge 2 ]; do sleep 0.02; done"
    consumer = start("consume", "emails", "--exec", program, "-p", "2", "-c", "1")
    for _ in range(40):
        queue.send("payload")
    assert eventually(lambda: queue.stats().acked == 40)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
    parents = {int(pid) for pid in pids.read_text().split()}
    assert len(parents) == 2
    assert consumer.pid not in parents


@pytest.mark.full
def test_process_that_dies_is_replaced(start: Start, queue: Queue, tmp_path: Path):
    consumer = start("consume", "emails", "--exec", f"echo $PPID >> {tmp_path}/pids", "--processes", "2")
    queue.send("payload")
    assert eventually(lambda: queue.stats().acked == 1)
    first = int((tmp_path / "pids").read_text())
    os.kill(first, signal.SIGKILL)
    log = followed(consumer)
    assert eventually(lambda: sum("consumer process started" in line for line in log) == 3)
    for _ in range(20):
        queue.send("payload")
    assert eventually(lambda: queue.stats().acked == 21)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0


CALLS = """
import os, subprocess, sys
from delayq import Queue

emails = Queue("emails")
inner = Queue("inner")

@emails.handler
def call(message):
    with open("variables", "w") as file:
        file.write(" ".join(os.environ))
    inner.send(message.payload)
    words = [sys.executable, "-m", "delayq.cli", "consume", "calls:inner", "--burst"]
    done = subprocess.run(words, capture_output=True, text=True)
    with open("said", "w") as file:
        file.write(done.stderr)

@inner.handler
def end(message):
    pass
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "words", [["--processes", "2"], ["--recycle-after", "9"], ["--processes", "2", "--pool", "process"]]
)
def test_consumer_that_a_handler_starts_is_no_orphan(
    start: Start, queue: Queue, tmp_path: Path, environment: dict[str, str], words: list[str]
):
    """Nor does it inherit any other variable that the supervisor has set for its own processes."""
    (tmp_path / "calls.py").write_text(CALLS)
    queue.send("payload")
    consumer = start("consume", "calls:emails", *words, stderr=None)
    assert eventually(lambda: queue.stats().acked == 1)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
    said = (tmp_path / "said").read_text()
    assert "supervisor gone" not in said
    assert "consumer stopped" in said
    names = {name for name in (tmp_path / "variables").read_text().split() if name.startswith("DELAYQ_")}
    assert names <= set(environment)


@pytest.mark.full
def test_consumer_with_the_variable_of_another_supervisor_is_no_orphan(delayq: Run):
    """As one that a handler of an older delayq starts."""
    done = delayq("consume", "emails", "--exec", "true", "--burst", env={"DELAYQ_SUPERVISOR": "1"})
    assert "supervisor gone" not in done.stderr
    assert done.returncode == 0


@needs_proc
@pytest.mark.full
def test_children_of_a_killed_supervisor_end(start: Start, queue: Queue):
    consumer = start("consume", "emails", "--exec", "true", "--processes", "2")
    queue.send("payload")
    assert eventually(lambda: queue.stats().acked == 1)  # by one of them; the other may still be starting
    assert eventually(lambda: len(children(consumer.pid)) == 2)
    consumers = children(consumer.pid)
    consumer.kill()
    assert eventually(lambda: all(map(ended, consumers)))


@pytest.mark.full
def test_modules_in_the_folder_do_not_hide_pythons_own(start: Start, queue: Queue, tmp_path: Path):
    (tmp_path / "click.py").write_text("raise SystemExit(9)")
    installed = [str(Path(sys.prefix) / "bin" / "delayq")]
    consumer = start("consume", "emails", "--exec", "true", "--processes", "2", program=installed)
    queue.send("payload")
    assert eventually(lambda: queue.stats().acked == 1)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0


@pytest.mark.full
def test_ctrl_c_during_the_start_ends_the_processes_without_a_traceback(start: Start, tmp_path: Path):
    logged = tmp_path / "log"
    with logged.open("w") as log:
        words = ["consume", "emails", "--exec", "true", "--processes", "3"]
        consumer = start(*words, stderr=log, start_new_session=True)
    assert eventually(lambda: logged.read_text().count("consumer process started") == 3)
    os.killpg(consumer.pid, signal.SIGINT)  # as a terminal does
    assert consumer.wait(120) == 0
    assert "Traceback" not in logged.read_text()


@pytest.mark.full
def test_wrong_target_ends_the_supervisor_with_exit_code_2(delayq: Run):
    done = delayq("consume", "json:nothing", "--processes", "2")
    assert done.returncode == 2
    assert "json:nothing does not exist" in done.stderr


@pytest.mark.full
def test_options_reach_the_children(start: Start, queue: Queue):
    words = ["--concurrency", "3", "--shutdown-timeout", "1m30s", "--lease", "7s", "--log-format", "json"]
    consumer = start("consume", "emails", "--exec", "exit 0", "--processes", "2", *words)
    queue.send("payload")
    assert eventually(lambda: queue.stats().acked == 1)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
    assert consumer.stderr is not None
    lines = [json.loads(line) for line in consumer.stderr]
    assert {line["concurrency"] for line in lines if line["event"] == "consumer started"} == {3}


def test_children_get_all_options_except_the_url_which_other_users_could_see(
    invoke: Invoke, server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    commands = []

    class Supervisor:
        def __init__(self, command: list[str], processes: int, shutdown_timeout: float, ends: bool) -> None:
            commands.append(command)
            assert (processes, shutdown_timeout, ends, os.environ["DELAYQ_URL"]) == (2, 90, True, server.url)

        def run(self) -> int:
            return 1

    monkeypatch.setattr("delayq.cli.consume.command.Supervisor", Supervisor)
    words = ["--exec", "-x 'y'", "-p", "2", "--url", server.url, "--burst", "--shutdown-timeout", "1m30s"]
    assert invoke("consume", "emails", "--", "-odd").exit_code == 2
    assert invoke("consume", *words, "--", "emails", "-odd").exit_code == 1
    (command,) = commands
    assert command[:5] == [sys.executable, "-P", "-m", "delayq.cli", "consume"]
    assert command[5:] == ["--exec", "-x 'y'", "--burst", "--shutdown-timeout", "90.0", "--", "emails", "-odd"]
