"""consume MODULE:QUEUE with an async queue."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke, Start
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

TASKS = """
import asyncio, pathlib
import structlog
import delayq
from delayq.aio import Queue

emails = Queue("emails", backoff=lambda attempt: 0.05)
letters = Queue("letters")
plain = Queue("plain")
ticks = Queue("ticks")
orders = delayq.Queue("orders")

@emails.handler
async def deliver(message):
    structlog.get_logger("tasks").info("delivering")
    if message.payload == "fails" and message.attempt == 1:
        raise RuntimeError("bad day")
    if message.payload == "slow":
        pathlib.Path("started").touch()
        await asyncio.sleep(1)

@letters.handler
async def post(message):
    await emails.send("from letters")
    await emails.close()

@plain.handler
def file(message):
    structlog.get_logger("tasks").info("filing")

@orders.handler
def pack(message):
    pass

@ticks.cron("every 1s")
async def tick(message):
    structlog.get_logger("tasks").info("ticking")
"""


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path) -> Path:
    """tasks.py, in the folder where the commands run."""
    path = tmp_path / "tasks.py"
    path.write_text(TASKS)
    return path


@pytest.fixture
def emails(server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=server.url) as queue:
        yield queue


def test_async_handler_handles_due_messages_and_its_log_lines_name_them(invoke: Invoke, emails: Queue):
    sent = emails.send("fails")
    done = invoke("consume", "tasks:emails", "--max-messages", "2", "--log-format", "json")
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["id"], line["attempt"]) for line in lines if line["event"] == "delivering"] == [
        (sent.id, 1),
        (sent.id, 2),
    ]
    assert emails.stats().acked == 1


def test_blocking_and_async_targets_are_consumed_side_by_side(invoke: Invoke, server: RedisServer, emails: Queue):
    names = ("letters", "plain", "orders")
    for name in names:
        with Queue(name, url=server.url) as queue:
            queue.send("x")
    done = invoke("consume", *(f"tasks:{name}" for name in names), "--burst")
    assert done.exit_code == 0, done.stderr
    for name in names:
        with Queue(name, url=server.url) as queue:
            assert queue.stats().acked == 1
    assert emails.stats().sent == 1


@pytest.mark.full
@pytest.mark.parametrize("targets", [["tasks:emails"], ["tasks:emails", "tasks:letters", "tasks:orders"]])
def test_sigterm_lets_an_async_handler_finish(targets: list[str], start: Start, emails: Queue, tmp_path: Path):
    emails.send("slow")
    process = start("consume", *targets)
    assert eventually((tmp_path / "started").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    stats = emails.stats()
    assert (stats.acked, stats.inside) == (1, 0)


def test_missing_server_is_reported_in_one_line(invoke: Invoke, tmp_path: Path):
    done = invoke("consume", "tasks:emails", "tasks:letters", "--no-wait", "--url", f"unix://{tmp_path}/none")
    assert done.exit_code == 1
    assert len(done.stderr.strip().splitlines()) == 1


def test_queue_with_only_schedules_is_consumed_and_its_log_lines_name_the_message(invoke: Invoke):
    done = invoke("consume", "tasks:ticks", "--max-messages", "1", "--log-format", "json")
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["queue"], line["attempt"]) for line in lines if line["event"] == "ticking"] == [("ticks", 1)]
