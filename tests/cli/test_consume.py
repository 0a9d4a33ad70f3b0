"""consume MODULE:QUEUE: the user's module, its handlers, several at a time, in several processes."""

from __future__ import annotations

import datetime as dt
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Queue
from tests.cli.conftest import SECONDS, Invoke, Start, followed
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

TASKS = """
import logging, os, pathlib, time
import structlog
from delayq import Queue, Reject

emails = Queue("emails", backoff=lambda attempt: 0.05)
orders = Queue("orders")
unhandled = Queue("unhandled")
not_a_queue = {}

class group:
    inner = emails

@emails.handler
def deliver(message):
    logging.getLogger("tasks").info("by logging")
    structlog.get_logger("tasks").info("by structlog", more=1)
    if message.payload == "fails" and message.attempt == 1:
        raise RuntimeError("bad day")
    if message.payload == "slow":
        pathlib.Path("started").touch()
        time.sleep(1)

@orders.handler
def pack(message):
    pathlib.Path("packed").touch()
"""


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path) -> Path:
    """tasks.py, in the folder where the commands run."""
    path = tmp_path / "tasks.py"
    path.write_text(TASKS)
    return path


def events(stderr: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stderr.splitlines()]


def test_handler_in_a_module_handles_due_messages(invoke: Invoke, queue: Queue):
    for payload in ("one", "two", "fails"):
        queue.send(payload)
    done = invoke("consume", "tasks:emails", "--max-messages", "4")
    assert done.exit_code == 0, done.stderr
    stats = queue.stats()
    assert (stats.acked, stats.nacked, stats.inside) == (3, 1, 0)


def test_burst_stops_when_nothing_is_due_and_leaves_the_rest(invoke: Invoke, queue: Queue):
    queue.send("now")
    queue.send("later", delay=3600)
    assert invoke("consume", "tasks:group.inner", "--burst").exit_code == 0
    stats = queue.stats()
    assert (stats.acked, stats.pending) == (1, 1)


def test_every_log_line_about_a_message_names_it(invoke: Invoke, queue: Queue):
    queue.send("fails", id="order-42")
    done = invoke("consume", "tasks:emails", "--max-messages", "2", "--log-format", "json")
    assert done.stdout == ""
    lines = events(done.stderr)
    about = [(line["event"], line["queue"], line["id"], line["attempt"]) for line in lines if "id" in line]
    assert about == [
        ("by logging", "emails", "order-42", 1),
        ("by structlog", "emails", "order-42", 1),
        ("delivery failed", "emails", "order-42", 1),
        ("by logging", "emails", "order-42", 2),
        ("by structlog", "emails", "order-42", 2),
    ]
    (failed,) = [line for line in lines if line["event"] == "delivery failed"]
    assert (failed["error"], failed["level"]) == ("RuntimeError: bad day", "warning")
    assert {line["event"] for line in lines if "id" not in line} == {"consumer started", "consumer stopped"}
    assert all(line["timestamp"].endswith("Z") for line in lines)


def test_console_log_has_no_colours_in_a_file(invoke: Invoke, queue: Queue):
    queue.send("fails", id="order-42")
    lines = invoke("consume", "tasks:emails", "--max-messages", "2").stderr.splitlines()
    (failed,) = [line for line in lines if "delivery failed" in line]
    assert "[warning] delivery failed queue=emails id=order-42 attempt=1 " in failed
    assert "\x1b" not in failed


@pytest.mark.full
def test_several_targets_are_consumed_side_by_side(start: Start, server: RedisServer, queue: Queue, tmp_path: Path):
    consumer = start("consume", "tasks:emails", "tasks:orders")
    with Queue("orders", url=server.url) as orders:
        orders.send("payload")
        queue.send("payload")
        assert eventually(lambda: orders.stats().acked == queue.stats().acked == 1)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
    assert (tmp_path / "packed").exists()


def test_several_targets_in_a_burst_end_when_each_is_empty(invoke: Invoke, server: RedisServer, queue: Queue):
    queue.send("payload")
    with Queue("orders", url=server.url) as orders:
        orders.send("payload")
        assert invoke("consume", "tasks:emails", "tasks:orders", "--burst").exit_code == 0
        assert orders.stats().acked == queue.stats().acked == 1


@pytest.mark.parametrize(
    "targets", [["tasks:emails"], pytest.param(["tasks:emails", "tasks:orders"], marks=pytest.mark.full)]
)
def test_sigterm_lets_a_handler_finish(targets: list[str], start: Start, queue: Queue, tmp_path: Path):
    queue.send("slow")
    consumer = start("consume", *targets)
    assert eventually((tmp_path / "started").exists)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
    assert queue.stats().acked == 1


@pytest.mark.full
@pytest.mark.parametrize("targets", [["tasks:emails"], ["tasks:emails", "tasks:orders"], ["tasks:emails", "-p", "2"]])
def test_sigterm_during_a_suspension_ends_it_when_it_continues(targets: list[str], start: Start, queue: Queue):
    """The kernel may then deliver the signal to any of its threads."""
    queue.send("payload")
    consumer = start("consume", *targets)
    assert eventually(lambda: queue.stats().acked == 1)
    consumer.send_signal(signal.SIGSTOP)
    assert eventually(lambda: " T " in Path(f"/proc/{consumer.pid}/stat").read_text())
    consumer.send_signal(signal.SIGTERM)
    consumer.send_signal(signal.SIGCONT)
    assert consumer.wait(120) == 0


SLOWLY = """
import asyncio
from delayq.aio import Queue as AsyncQueue

slowly = AsyncQueue("slowly")

@slowly.handler
async def deliver_slowly(message):
    pathlib.Path("started").touch()
    await asyncio.sleep(60)
"""


@pytest.mark.parametrize(
    "targets",
    [
        ["tasks:emails"],
        pytest.param(["tasks:emails", "tasks:orders"], marks=pytest.mark.full),
        pytest.param(["tasks:emails", "tasks:slowly"], marks=pytest.mark.full),
        pytest.param(["tasks:emails", "-p", "2"], marks=pytest.mark.full),
        pytest.param(["tasks:slowly"], marks=pytest.mark.full),
    ],
    ids=" ".join,
)
def test_second_signal_ends_it_at_once_and_logs_what_it_abandons(
    targets: list[str], start: Start, server: RedisServer, tasks: Path
):
    tasks.write_text(TASKS.replace("time.sleep(1)", "time.sleep(60)") + SLOWLY)
    name = "emails" if "tasks:emails" in targets else "slowly"
    with Queue(name, url=server.url) as held:
        held.send("slow")
        consumer = start("consume", *targets, "--log-format", "json")
        assert eventually((tasks.parent / "started").exists)
        consumer.send_signal(signal.SIGINT)
        assert consumer.stderr is not None
        hint = next(line for line in map(json.loads, consumer.stderr) if "hint" in line)
        assert (hint["event"], hint["running"]) == ("waiting for running handlers", 1)
        consumer.send_signal(signal.SIGINT)
        lines = consumer.stderr.readlines()
        assert [line for line in lines if not line.startswith("{")] == []
        (left,) = [line for line in map(json.loads, lines) if "abandoned" in line["event"]]
        (info,) = held.peek("unack")
        assert (left["level"], left["messages"], consumer.wait(120)) == ("warning", 1, 1)
        assert info.lease_until is not None
        assert dt.datetime.fromisoformat(left["until"]) <= info.lease_until


@pytest.mark.full
def test_signal_during_the_start_is_not_lost(start: Start):
    consumer = start("consume", "tasks:emails", "tasks:orders")
    assert consumer.stderr is not None
    consumer.stderr.readline()  # the first consumer has started, the second may not have
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0


UNUSABLE: list[tuple[str, str | None, str]] = [
    ("tasks:nothing", None, "tasks:nothing does not exist: the queues of tasks are emails, orders, unhandled"),
    ("tasks:not_a_queue", None, "tasks:not_a_queue is of type dict, not a Queue: the queues of tasks are emails"),
    ("tasks:unhandled", None, "tasks:unhandled has no handler: decorate a function with @unhandled.handler"),
    ("taks:emails", None, "no module named 'taks' is in "),
    ("tasks.sub:emails", None, "no module named 'tasks.sub' is in "),
    (
        "tasks:emails",
        "import nowhere_at_all",
        "cannot import 'tasks': ModuleNotFoundError: No module named 'nowhere",
    ),
    ("tasks:emails", "x = 1\n1 / 0", "cannot import 'tasks': ZeroDivisionError: division by zero ("),
    ("tasks:emails", "\n\ndef broken(:", "cannot import 'tasks': SyntaxError: "),
    ("tasks:emails", "import sys; sys.exit(0)", "cannot import 'tasks': SystemExit: 0"),
]


def test_target_that_cannot_be_consumed_is_explained(invoke: Invoke, tasks: Path):
    offenders = []
    for target, source, named in UNUSABLE:
        tasks.write_text(source or TASKS)
        done = invoke("consume", target)
        explained = done.stderr.startswith(f"delayq: {named}") and done.stderr.count("\n") == 1
        if (done.exit_code, explained) != (2, True):
            offenders.append((target, source, done.exit_code, done.output))
    assert offenders == []


def test_error_in_the_module_is_reported_with_its_line(invoke: Invoke, tasks: Path):
    tasks.write_text("x = 1\n\n1 / 0\n")
    assert "tasks.py, line 3)" in invoke("consume", "tasks:emails").stderr


CARELESS = """
from delayq import Queue

queue = Queue("emails")

@queue.handler
def handle(message):
    password = "hunter2"
    raise RuntimeError("no mail server")
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_traceback_of_a_handler_is_logged_without_its_variables(
    invoke: Invoke, queue: Queue, tmp_path: Path, log_format: str
):
    (tmp_path / "careless.py").write_text(CARELESS)
    queue.send("x", max_retries=0)
    done = invoke("consume", "careless:queue", "--burst", "--log-format", log_format)
    assert "no mail server" in done.stderr
    assert "careless.py" in done.stderr
    assert "password" not in done.stderr.replace('password = "hunter2"', "")
    assert "'hunter2'" not in done.stderr


@pytest.mark.parametrize(
    ("words", "is_warned"), [(("send", "emails", "x"), False), (("consume", "tasks:emails", "--burst"), True)]
)
def test_only_the_consumer_warns_about_the_servers_settings(
    invoke: Invoke,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    is_warned: bool,
):
    redis_client.config_set("save", "")
    monkeypatch.setattr("delayq.transport.server_check._warned", set())
    done = invoke(*words)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("keeps nothing on disk") == is_warned


@pytest.mark.parametrize(("words", "env"), [(("--log-level", "WARNING"), {}), ((), {"DELAYQ_LOG_LEVEL": "warning"})])
def test_lines_below_the_level_are_left_out(invoke: Invoke, queue: Queue, words: tuple[str, ...], env: dict[str, str]):
    queue.send("fails", max_retries=0)
    done = invoke("consume", "tasks:emails", "--burst", *words, env=env)
    assert "bad day" in done.stderr
    assert "[info]" not in done.stderr


FACES = """
from delayq import Queue
from delayq.aio import Queue as AsyncQueue

emails = Queue("emails")
awaited = AsyncQueue("emails")

@emails.handler
def deliver(message): ...

@awaited.handler
async def deliver_async(message): ...
"""


@pytest.mark.parametrize("words", [["faces:emails"], ["faces:awaited"], ["emails", "--exec", "true"]])
def test_consumer_waits_until_the_server_is_up(
    words: list[str], start: Start, start_server: StartServer, environment: dict[str, str], tmp_path: Path
):
    (tmp_path / "faces.py").write_text(FACES)
    server = start_server()
    server.kill()
    consumer = start("consume", *words, "--max-messages", "1", env=environment | {"DELAYQ_URL": server.url})
    lines = followed(consumer)
    assert eventually(lambda: any("redis unavailable, retrying" in line for line in lines))
    server.start()
    with Queue("emails", url=server.url) as queue:
        queue.send("payload")
        assert consumer.wait(SECONDS) == 0
        assert queue.stats().acked == 1
    assert eventually(lambda: "consumer stopped" in "".join(lines))
    logged = [
        line
        for line in lines
        if "redis unavailable" in line or "redis available again" in line or "consumer started" in line
    ]
    assert [re.split(r" +(?:error|queue)=", line.partition("] ")[2])[0].strip() for line in logged] == [
        "redis unavailable, retrying",
        "redis available again",
        "consumer started",
    ]


@pytest.mark.parametrize("option", ["--no-wait", "--burst"])
def test_consumer_with_no_wait_fails_without_a_server(option: str, invoke: Invoke, tmp_path: Path):
    nowhere = {"DELAYQ_URL": f"unix://{tmp_path}/nobody"}
    for words in (["tasks:emails"], ["emails", "--exec", "true"]):
        done = invoke("consume", *words, option, env=nowhere)
        assert done.exit_code == 1
        assert "check that the server is running" in done.stderr


def test_consumer_that_waits_for_its_server_ends_with_a_signal(start: Start, environment: dict[str, str]):
    consumer = start("consume", "emails", "--exec", "true", env=environment | {"DELAYQ_URL": "redis://127.0.0.1:1"})
    lines = followed(consumer)
    assert eventually(lambda: any("redis unavailable" in line for line in lines))
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(SECONDS) == 0


def test_consumer_whose_start_fails_ends_with_exit_code_1_and_leaves_the_messages(
    invoke: Invoke, queue: Queue, tmp_path: Path
):
    (tmp_path / "tasks.py").write_text(TASKS + "\n@emails.middleware.on_start\ndef connect(_):\n    1 / 0\n")
    queue.send("x")
    done = invoke("consume", "tasks:emails", "--burst")
    assert done.exit_code == 1
    assert "on_start function connect failed, so the consumer did not start: ZeroDivisionError" in done.stderr
    assert "Traceback" in done.stderr
    assert queue.stats().delivered == 0
