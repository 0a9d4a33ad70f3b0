"""consume --topic: handle the records of a topic for one of its groups."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import NewRecord, Topic
from delayq.protocol.topic_commands import REQUEUED
from tests.cli.conftest import Invoke, Start, followed
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

TASKS = """
import asyncio, os, pathlib, time
import structlog
from delayq import Reject

log = structlog.get_logger("tasks")

def bill(record):
    log.info("billing")
    if record.payload == 3:
        raise Reject("no such customer")
    if record.payload == 4:
        raise ValueError("not today")

async def mail(record):
    log.info("mailing")
    await asyncio.sleep(0)

def note(record):
    with open(f"handled-{os.getpid()}", "a", buffering=1) as file:
        file.write(f"{record.payload}\\n")
    time.sleep(0.005)

def slow(record):
    pathlib.Path(f"started-{record.payload}").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    note(record)

def late(number: int):
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    if type(number) is not int:
        raise AssertionError

number = 5
"""


@pytest.fixture
def topic(server: RedisServer, tmp_path: Path) -> Iterator[Topic]:
    """A topic, in a folder from which ``bills`` can be imported."""
    (tmp_path / "bills.py").write_text(TASKS)
    with Topic("orders", url=server.url) as topic:
        yield topic


def publish(topic: Topic, count: int) -> None:
    topic.publish_many([NewRecord(number) for number in range(count)])


def lines(stderr: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(("function", "event"), [("bill", "billing"), ("mail", "mailing")])
def test_function_handles_the_records_and_its_log_lines_name_them(
    invoke: Invoke, topic: Topic, function: str, event: str
):
    publish(topic, 3)
    words = ["--topic", "orders", "--group", "billing", "--start", "0", f"bills:{function}"]
    done = invoke("consume", *words, "--burst", "--log-format", "json")
    assert done.exit_code == 0, done.stderr
    logged = [line for line in lines(done.stderr) if line["event"] == event]
    ids = [record.id for record in topic.range()]
    assert sorted((line["topic"], line["group"], line["id"], line["delivery"]) for line in logged) == [
        ("orders", "billing", each, 1) for each in ids
    ]
    assert (topic.group("billing").lag(), topic.group("billing").unacked()) == (0, [])


def test_group_starts_with_new_records_by_default(invoke: Invoke, topic: Topic):
    publish(topic, 3)
    assert invoke("consume", "--topic", "orders", "--group", "new", "bills:bill", "--burst").exit_code == 0
    publish(topic, 2)
    done = invoke("consume", "--topic", "orders", "--group", "new", "bills:bill", "-c", "1", "--max-messages", "1")
    assert done.exit_code == 0, done.stderr
    assert topic.group("new").lag() == 1


def test_group_starts_at_a_time(invoke: Invoke, topic: Topic):
    publish(topic, 3)
    words = ["--topic", "orders", "--group", "new", "bills:mail", "--burst", "--start"]
    done = invoke("consume", *words, "2020-01-01T00:00")
    assert done.exit_code == 2
    assert "has no time zone" in done.stderr
    assert topic.groups() == []
    assert invoke("consume", *words, "2020-01-01T00:00Z", "--log-format", "json").stderr.count("mailing") == 3


def test_record_that_keeps_failing_becomes_a_dead_letter(invoke: Invoke, topic: Topic):
    publish(topic, 5)
    words = ["--topic", "orders", "--group", "billing", "--start", "0", "--max-deliveries", "1", "bills:bill"]
    assert invoke("consume", *words, "--burst").exit_code == 0
    letters = topic.group("billing").dead()
    assert sorted((each.record.payload, each.reason) for each in letters) == [
        (3, "no such customer"),
        (4, "deliveries-exhausted"),
    ]


@pytest.mark.full
def test_killed_and_stopped_processes_lose_nothing(start: Start, topic: Topic, tmp_path: Path):
    group = topic.group("billing")
    words = ["--topic", "orders", "--group", "billing", "--ack-timeout", "1s", "-c", "2", "bills:note"]

    def handled() -> list[int]:
        return [int(line) for path in tmp_path.glob("handled-*") for line in path.read_text().split()]

    def takes_part(process: subprocess.Popen[str]) -> bool:
        publish(topic, 1)  # one that starts late may have missed all others
        return (tmp_path / f"handled-{process.pid}").exists()

    processes = [start("consume", *words) for _ in range(3)]
    publish(topic, 1000)
    for process, how in zip(processes, (signal.SIGKILL, signal.SIGTERM), strict=False):
        assert eventually(lambda: takes_part(process))  # noqa: B023
        process.send_signal(how)
        assert process.wait(120) == (0 if how == signal.SIGTERM else -how)
    assert eventually(lambda: not group.unacked() and not group.lag())
    assert set(handled()) == set(range(1000))
    processes[2].terminate()
    assert processes[2].wait(120) == 0


@pytest.mark.full
def test_sigterm_lets_a_handler_finish(start: Start, topic: Topic, tmp_path: Path):
    group = topic.group("billing")
    process = start("consume", "--topic", "orders", "--group", "billing", "-c", "1", "bills:slow")
    publish(topic, 2)
    assert eventually((tmp_path / "started-0").exists)
    log = followed(process)
    process.terminate()
    assert eventually(lambda: any("waiting for running handlers" in line for line in log))
    (tmp_path / "go").touch()
    assert process.wait(120) == 0
    assert not (tmp_path / "started-1").exists()
    assert (tmp_path / f"handled-{process.pid}").read_text() == "0\n"
    assert len(group.unacked()) + group.lag() == 1


@pytest.mark.full
def test_several_processes_share_a_group(start: Start, topic: Topic, tmp_path: Path):
    group = topic.group("billing")
    process = start("consume", "--topic", "orders", "--group", "billing", "-c", "1", "--processes", "2", "bills:note")

    def share() -> bool:
        publish(topic, 10)
        return len(list(tmp_path.glob("handled-*"))) == 2

    assert eventually(share)
    process.terminate()
    assert process.wait(120) == 0
    assert {each.consumer for each in group.unacked()} <= {REQUEUED}


@pytest.mark.full
def test_typed_handler_over_its_time_limit_is_logged(start: Start, topic: Topic, tmp_path: Path):
    group = topic.group("billing")
    topic.publish_many([NewRecord(1), NewRecord("one")])
    words = ["--topic", "orders", "--group", "billing", "--timeout", "0.05", "bills:late"]
    consumer = start("consume", *words, "--burst", "--log-format", "json")
    log = followed(consumer)

    def overruns() -> list[tuple[object, object]]:
        over = [line for line in lines("".join(log)) if str(line["event"]).startswith("handler exceeded")]
        return [(line["topic"], line["delivery"]) for line in over]

    assert eventually(lambda: bool(overruns()))
    (tmp_path / "go").touch()
    assert consumer.wait(120) == 0
    assert set(overruns()) == {("orders", 1)}  # on a paused machine, the other record may exceed it too
    assert [letter.reason for letter in group.dead()] == ["payload-mismatch"]


REFUSED = [
    (["--topic", "orders", "bills:bill"], "--topic needs --group"),
    (["--group", "billing", "bills:bill"], "--group needs --topic"),
    (["--max-deliveries", "3", "bills:bill"], "--max-deliveries needs --topic"),
    (["--start", "0", "bills:bill"], "--start needs --topic"),
    (["--ack-timeout", "3", "bills:bill"], "--ack-timeout needs --topic"),
    (["--topic", "orders", "--group", "g", "--exec", "cat", "orders"], "--exec applies only to queues"),
    (["--topic", "orders", "--group", "g", "--strict", "bills:bill"], "--strict applies only to queues"),
    (["--topic", "orders", "--group", "g", "--pool", "process", "bills:bill"], "--pool applies only to queues"),
    (["--topic", "orders", "--group", "g", "--lease", "3", "bills:bill"], "--lease applies only to queues"),
    (["--topic", "orders", "--group", "g", "--events", "bills:bill"], "--events applies only to queues"),
    (["--topic", "orders", "--group", "g", "bills:bill", "bills:mail"], "takes only one TARGET"),
    (["--topic", "orders", "--group", "g", "bills"], "is not MODULE:HANDLER"),
    (["--topic", "orders", "--group", "g", "bills:nobody"], "bills:nobody does not exist"),
    (["--topic", "orders", "--group", "g", "bills:number"], "is of type int, not a function"),
    (["--topic", "orders", "--group", "g", "absent:bill"], "no module named 'absent' is in"),
    (["--topic", "orders", "--group", "g", "--start", "noon", "bills:bill"], "noon"),
    (["--topic", "or{ders", "--group", "g", "bills:bill"], "or{ders"),
]


def test_conflicting_options_are_refused(invoke: Invoke, topic: Topic):
    offenders = []
    for words, expected in REFUSED:
        result = invoke("consume", *words, "--burst")
        if (result.exit_code, expected in result.output) != (2, True) or topic._executor.client.keys("*orders*"):
            offenders.append((words, result.exit_code, result.output))
    assert offenders == []
