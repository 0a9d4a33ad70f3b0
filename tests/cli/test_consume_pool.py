"""consume --pool process, and --timeout for handlers of each kind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke, Run, Start, ended, followed
from tests.harness.waiting import eventually

TASKS = """
import asyncio, os, pathlib, subprocess, time
import structlog
import delayq
from delayq import aio

emails = delayq.Queue("emails", backoff=lambda attempt: 0.01)
letters = aio.Queue("letters")
threads = delayq.Queue("threads")
awaited = aio.Queue("awaited", max_retries=0)

@letters.handler
@emails.handler
def deliver(message):
    structlog.get_logger("tasks").info("delivering", pid=os.getpid())
    print(f"from {os.getpid()}")
    if message.payload == "stuck" and message.attempt == 1:
        time.sleep(60)
    if message.payload == "slow":
        pathlib.Path("started").write_text(str(os.getpid()))
        while not pathlib.Path("go").exists():
            time.sleep(0.01)

@emails.cron("0 0 1 1 *")
def yearly(message):
    print(f"yearly in {os.getpid()}")

@threads.handler
def dawdle(message):
    while not pathlib.Path("go").exists():
        time.sleep(0.01)

@awaited.handler
async def dream(message):
    await asyncio.sleep(60)
"""


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)


def lines_of(stderr: str, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stderr.splitlines()]
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("name", ["emails", pytest.param("letters", marks=pytest.mark.full)])
def test_plain_handlers_run_in_one_process_per_core(delayq: Run, invoke: Invoke, name: str):
    for n in range(3):
        assert invoke("send", name, str(n)).exit_code == 0
    done = delayq("consume", f"tasks:{name}", "--pool", "process", "--max-messages", "3", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    (started,) = lines_of(done.stderr, "consumer started")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert started["concurrency"] == cores
    found = lines_of(done.stderr, "delivering")
    assert {(line["queue"], line["attempt"]) for line in found} == {(name, 1)}
    assert len({line["id"] for line in found}) == 3
    printed = {line for line in done.stdout.splitlines() if line.startswith("from ")}
    assert printed == {f"from {line['pid']}" for line in found}


@pytest.mark.full
def test_function_of_a_schedule_runs_in_a_process(delayq: Run, queue: Queue):
    assert delayq("consume", "tasks:emails", "--pool", "process", "--burst").returncode == 0  # stores the schedule
    queue.schedules.run_now("yearly")
    done = delayq("consume", "tasks:emails", "--pool", "process", "--burst")
    assert "yearly in " in done.stdout


@pytest.mark.full
def test_process_over_its_time_limit_is_killed_and_its_message_retried(start: Start, queue: Queue):
    queue.send("stuck", max_retries=100)  # if the machine pauses, the second attempt may take too long too
    consumer = start("consume", "tasks:emails", "--pool", "process", "--timeout", "3s", "--log-format", "json")
    lines = followed(consumer)
    assert eventually(lambda: queue.stats().acked == 1)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
    error = "TimeoutError: the handler took longer than 3 s: its process was killed"
    assert eventually(lambda: {line["error"] for line in lines_of("".join(lines), "delivery failed")} == {error})


@pytest.mark.full
def test_program_over_its_time_limit_is_stopped_with_its_children(start: Start, queue: Queue, tmp_path: Path):
    queue.send("x", max_retries=100, id="x")  # if the machine pauses, an attempt may end before it starts
    program = "sleep 3600 & echo $! >> children; echo begun >&2; sleep 3600"
    consumer = start("consume", "emails", "--exec", program, "--timeout", "1s")
    error = "ProgramFailed: stopped after its time limit of 1 s: begun"
    assert eventually(lambda: (info := queue.get("x")) is not None and info.error == error)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
    children = [int(pid) for pid in (tmp_path / "children").read_text().split()]
    assert eventually(lambda: all(map(ended, children)))


def test_program_that_exits_with_0_when_stopped_has_failed_anyway(invoke: Invoke, queue: Queue):
    queue.send("x", max_retries=0, id="x")
    program = "trap 'exit 0' TERM; while true; do sleep 0.05; done"
    invoke("consume", "emails", "--exec", program, "--timeout", "200ms", "--max-messages", "1")
    assert queue.stats().acked == 0


@pytest.mark.full
def test_thread_over_its_time_limit_is_logged(invoke: Invoke, start: Start, tmp_path: Path):
    invoke("send", "threads", "x")
    words = ("--timeout", "50ms", "--max-messages", "1", "--log-format", "json")
    consumer = start("consume", "tasks:threads", *words)
    lines = followed(consumer)
    assert eventually(lambda: any("handler exceeded its time limit" in line for line in lines))
    (tmp_path / "go").touch()
    assert consumer.wait(120) == 0
    assert eventually(lambda: len(lines_of("".join(lines), "handler ended after its time limit")) == 1)


def test_async_handler_over_its_time_limit_is_cancelled(invoke: Invoke):
    invoke("send", "awaited", "x")
    done = invoke("consume", "tasks:awaited", "--timeout", "50ms", "--max-messages", "1", "--log-format", "json")
    (failed,) = lines_of(done.stderr, "delivery failed")
    assert failed["error"] == "TimeoutError: the handler took longer than 0.05 s: cancelled"


@pytest.mark.full
def test_each_of_several_processes_has_a_pool(start: Start, queue: Queue, tmp_path: Path):
    queue.send("slow")
    consumer = start("consume", "tasks:emails", "--pool", "process", "-c", "1", "-p", "2")
    lines = followed(consumer)
    assert eventually(lambda: sum("consumer started" in line for line in lines) == 2)
    assert eventually(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text() != "")
    handler = int((tmp_path / "started").read_text())
    consumer.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert consumer.wait(120) == 0
    assert queue.stats().acked == 1
    assert ended(handler)


REFUSED = {
    ("emails", "--exec", "true", "--pool", "process"): "with --exec, each program is already a process",
    ("emails", "--exec", "true", "--timeout", "0"): "'0' leaves a handler no time: leave the option out for no limit",
    ("tasks:emails", "--timeout", "2d"): "'2d' is more than 1d: leave the option out for no limit",
    ("tasks:emails", "--pool", "fork"): "'fork' is not one of 'thread', 'process'",
    ("tasks:emails", "tasks:letters", "--pool", "process"): "--pool process takes only one TARGET",
    ("tasks:awaited", "--pool", "process"): "is an async function, which runs on the event loop",
}


def test_impossible_options_are_refused(invoke: Invoke):
    results = {words: invoke("consume", *words) for words in REFUSED}
    offenders = {words: each.output for words, each in results.items() if REFUSED[words] not in each.stderr}
    assert offenders == {}
    assert {each.exit_code for each in results.values()} == {2}
