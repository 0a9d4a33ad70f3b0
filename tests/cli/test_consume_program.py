"""consume --exec: what the program gets, and what its exit means."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke, Start, ended, followed
from tests.harness.waiting import eventually

WHOLE_ENVIRONMENT = f"{sys.executable} -c 'import os, json; print(json.dumps(dict(os.environ)))'"


@pytest.fixture
def all_of_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for what a program has written to stderr, however slow the machine is."""
    monkeypatch.setattr("delayq.cli.consume.program.STRAGGLER_SECONDS", 60.0)


@pytest.mark.parametrize(
    ("program", "state", "error"),
    [
        ("exit 0", None, None),
        ("exit 1", "retry", "ProgramFailed: exit code 1"),
        ("exit 75", "retry", "ProgramFailed: exit code 75"),
        ("exit 255", "retry", "ProgramFailed: exit code 255"),
        ("exit 65", "dead", "Reject: exit code 65"),
        ("kill -9 $$", "retry", "ProgramFailed: killed by SIGKILL"),
        ("kill -TERM $$", "retry", "ProgramFailed: killed by SIGTERM"),
        ("sh -c 'kill -9 $$'; exit $?", "retry", "ProgramFailed: killed by SIGKILL.*"),
        ("no-such-program-here", "retry", "ProgramFailed: exit code 127: .*not found"),
        ("echo out; echo why >&2; exit 3", "retry", "ProgramFailed: exit code 3: why"),
        ("echo why >&2; exit 0", None, None),
        ("printf 'no newline' >&2; exit 65", "dead", "Reject: exit code 65: no newline"),
    ],
)
@pytest.mark.usefixtures("all_of_stderr")
def test_exit_code_decides(program: str, state: str | None, error: str | None, invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42")
    assert invoke("consume", "emails", "--exec", program, "--max-messages", "1").exit_code == 0
    info = queue.get("order-42")
    assert (info.state if info else None) == state
    if error is not None:
        assert info is not None
        assert re.fullmatch(error, info.error or "")
        assert info.attempts == 1
    assert queue.stats().acked == (state is None)


def test_failing_program_is_rerun_until_no_retry_is_left(invoke: Invoke, queue: Queue, tmp_path: Path):
    queue.send("payload", id="order-42", max_retries=1)
    program = f'echo "$DELAYQ_ATTEMPT of $DELAYQ_MAX_RETRIES" >> {tmp_path}/attempts; exit 75'
    assert invoke("consume", "emails", "--exec", program, "--max-messages", "2").exit_code == 0
    assert (tmp_path / "attempts").read_text() == "1 of 1\n2 of 1\n"
    info = queue.get("order-42")
    assert info is not None
    assert (info.state, info.reason) == ("dead", "retries-exhausted")


@pytest.mark.parametrize(
    ("payload", "stdin"),
    [
        ({"to": "a"}, b'{"to":"a"}'),
        ("hello", b'"hello"'),
        (b"\x00\xff bytes\n", b"\x00\xff bytes\n"),
        (b"", b""),
        ("x" * 500_000, b'"' + b"x" * 500_000 + b'"'),
    ],
)
def test_payload_is_on_stdin_and_stdout_passes_through(
    payload: Any, stdin: bytes, invoke: Invoke, queue: Queue, capfdbinary: pytest.CaptureFixture[bytes]
):
    queue.send(payload)
    done = invoke("consume", "emails", "--exec", "cat", "--max-messages", "1")
    assert (done.exit_code, capfdbinary.readouterr().out) == (0, stdin)


def test_program_that_ignores_stdin_succeeds(invoke: Invoke, queue: Queue):
    queue.send(b"x" * 900_000)
    invoke("consume", "emails", "--exec", "true", "--max-messages", "1")
    assert queue.stats().acked == 1


def test_message_is_in_the_environment(invoke: Invoke, queue: Queue, capfd: pytest.CaptureFixture[str]):
    headers: dict[str, Any] = {
        "Content-Type": "text/plain",
        "n": 7,
        "yes": True,
        "none": None,
        "raw": b"\xffa\x00b",
        "tab\tü": "x=y",
    }
    sent = queue.send("payload", id="order-42", headers=headers, max_retries=5)
    invoke(
        *("consume", "emails", "--exec", WHOLE_ENVIRONMENT, "--max-messages", "1"),
        env={"DELAYQ_HEADER_STALE": "of an outer message", "KEPT": "as it is"},
    )
    found = json.loads(capfd.readouterr().out)
    shown = {name: value for name, value in found.items() if name.startswith("DELAYQ_")}
    assert shown == {
        "DELAYQ_ID": "order-42",
        "DELAYQ_QUEUE": "emails",
        "DELAYQ_ATTEMPT": "1",
        "DELAYQ_MAX_RETRIES": "5",
        "DELAYQ_DUE_AT": sent.due_at.isoformat(timespec="milliseconds"),
        "DELAYQ_SCHEDULE": "",
        "DELAYQ_SLOT": "",
        "DELAYQ_HEADER_CONTENT_TYPE": "text/plain",
        "DELAYQ_HEADER_N": "7",
        "DELAYQ_HEADER_YES": "true",
        "DELAYQ_HEADER_NONE": "",
        "DELAYQ_HEADER_RAW": "\ufffdab",
        "DELAYQ_HEADER_TAB__": "x=y",
        "DELAYQ_HOME": found["DELAYQ_HOME"],
        "DELAYQ_REQUIRE_URL": "1",
    }
    assert found["KEPT"] == "as it is"


@pytest.mark.usefixtures("all_of_stderr")
def test_stderr_is_logged_with_the_message_and_its_end_becomes_the_error(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42")
    program = (
        f'{sys.executable} -c "import sys; sys.stderr.write(chr(120) * 5000 + chr(10) + chr(27) + chr(121))"; exit 1'
    )
    done = invoke("consume", "emails", "--exec", program, "--max-messages", "1", "--log-format", "json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    said = [line for line in lines if line["event"] in ("x" * 5000, "\\x1by")]
    assert [(line["queue"], line["id"], line["attempt"]) for line in said] == [("emails", "order-42", 1)] * 2
    info = queue.get("order-42")
    assert info is not None
    assert info.error is not None
    assert info.error.endswith("xx\n\x1by")
    assert 1000 < len(info.error) <= 2000


def test_child_that_the_program_leaves_behind_does_not_block(invoke: Invoke, queue: Queue, tmp_path: Path):
    queue.send("payload", max_retries=0)
    invoke("consume", "emails", "--exec", f"sleep 3600 & echo $! > {tmp_path}/pid; exit 65", "--max-messages", "1")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it still runs
    assert queue.stats().dead == 1


def test_concurrency_limits_the_programs_that_run_at_once(invoke: Invoke, queue: Queue, tmp_path: Path):
    for _ in range(6):
        queue.send("payload")
    three_began = f"until [ $(grep -c + {tmp_path}/log) -ge 3 ]; do sleep 0.01; done"
    program = f"echo + >> {tmp_path}/log; {three_began}; sleep 0.1; echo - >> {tmp_path}/log"
    invoke("consume", "emails", "--exec", program, "--concurrency", "3", "--max-messages", "6")
    running = most = 0
    for sign in (tmp_path / "log").read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert (running, most) == (0, 3)


def test_sigterm_lets_programs_finish_and_hands_back_the_rest(start: Start, queue: Queue, tmp_path: Path):
    for number in range(5):
        queue.send(number, id=f"m{number}")
    until_released = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    program = f"echo $DELAYQ_ID >> {tmp_path}/started; {until_released}; echo $DELAYQ_ID >> {tmp_path}/done"
    consumer = start("consume", "emails", "--exec", program, "--concurrency", "2")
    assert eventually(lambda: (tmp_path / "started").exists() and len((tmp_path / "started").read_text().split()) == 2)
    lines = followed(consumer)
    consumer.send_signal(signal.SIGTERM)
    assert eventually(lambda: any("waiting for running handlers" in line for line in lines))
    (tmp_path / "go").touch()
    assert consumer.wait(120) == 0
    done = (tmp_path / "done").read_text().split()
    assert sorted(done) == sorted((tmp_path / "started").read_text().split())
    stats = queue.stats()
    assert (stats.acked, stats.unack, stats.ready + stats.pending) == (2, 0, 3)
    assert [info.attempts for info in queue.peek("ready") + queue.peek("pending")] == [0, 0, 0]


@pytest.mark.full
def test_ctrl_c_does_not_reach_the_programs(start: Start, queue: Queue, tmp_path: Path):
    queue.send("payload")
    program = f"trap 'echo hit >> {tmp_path}/hit' INT TERM; touch {tmp_path}/started; sleep 1; touch {tmp_path}/done"
    consumer = start("consume", "emails", "--exec", program, start_new_session=True)
    assert eventually((tmp_path / "started").exists)
    os.killpg(consumer.pid, signal.SIGINT)  # as a terminal does
    assert consumer.wait(120) == 0
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "hit").exists()
    assert queue.stats().acked == 1


@pytest.mark.full
@pytest.mark.parametrize("how", ["timeout", "second signal"])
def test_program_that_runs_too_long_is_stopped_with_its_children(how: str, start: Start, queue: Queue, tmp_path: Path):
    queue.send("payload", id="order-42")
    program = f"trap '' TERM; echo $$ >> {tmp_path}/pids; sleep 60 & echo $! >> {tmp_path}/pids; wait; sleep 60"
    words = ["--shutdown-timeout", "300ms"] if how == "timeout" else []
    consumer = start("consume", "emails", "--exec", program, *words)
    assert eventually(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
    consumer.send_signal(signal.SIGTERM)
    while how == "second signal" and consumer.poll() is None:  # two at once would be one
        time.sleep(0.3)
        consumer.send_signal(signal.SIGTERM)
    consumer.wait(120)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert eventually(lambda: all(map(ended, pids)))
    info = queue.get("order-42")
    assert info is not None
    assert info.state == ("ready" if how == "timeout" else "unack")


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_program_of_a_cancelled_message_is_stopped_with_its_children_and_the_next_one_runs(
    trap: str, start: Start, invoke: Invoke, queue: Queue, tmp_path: Path
):
    queue.send("payload", id="order-42")
    begin = f"echo $$ >> {tmp_path}/pids; sleep 60 & echo $! >> {tmp_path}/pids; wait; sleep 60"
    program = f"{trap}if [ $DELAYQ_ID = next ]; then exit 0; fi; {begin}"
    start("consume", "emails", "--exec", program, "--concurrency", "1")
    assert eventually(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
    queue.send("payload", id="next")
    assert invoke("cancel", "emails", "order-42", "--running").stdout == "stopping order-42\n"
    assert eventually(lambda: queue.stats().acked == 1)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert eventually(lambda: all(map(ended, pids)))
    stats = queue.stats()
    assert (stats.cancelled, stats.unack, stats.retry, stats.dead, stats.delivered) == (1, 0, 0, 0, 2)


def test_consumer_warns_if_a_new_queues_name_is_much_like_another(invoke: Invoke, queue: Queue):
    queue.send("payload")
    for name, said in {"emails:emails": True, "orders": False, "emails": False}.items():
        done = invoke("consume", name, "--exec", "true", "--burst")
        assert done.exit_code == 0, done.stderr
        assert (f"queue is new queue={name} did_you_mean=emails" in done.stderr) is said


def test_messages_own_timeout_stops_its_program_and_is_logged_once(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42", max_retries=0, timeout=0.3)
    done = invoke("consume", "emails", "--exec", "sleep 60", "--timeout", "1h", "--burst")
    assert done.exit_code == 0, done.stderr
    (dead,) = queue.dead.list()
    assert dead.error == "ProgramFailed: stopped after its time limit of 0.3 s"
    assert "handler exceeded" not in done.stderr


def test_timeout_of_zero_is_refused(invoke: Invoke):
    result = invoke("consume", "emails", "--exec", "true", "--timeout", "0")
    assert result.exit_code == 2
    assert "'--timeout': '0' leaves a handler no time: leave the option out for no limit" in result.stderr
