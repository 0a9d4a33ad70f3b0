"""consume TARGET=WEIGHT…: several queues, one concurrency."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq import Outgoing, Queue
from tests.cli.conftest import Invoke, Run
from tests.harness.servers import RedisServer

TASKS = """
import pathlib
import delayq
from delayq import aio

high, low = delayq.Queue("high"), delayq.Queue("low")
first, second = aio.Queue("high"), aio.Queue("low")

def note(message):
    with pathlib.Path("order").open("a") as order:
        order.write(message.queue + "\\n")

high.handler(note)
low.handler(note)

async def note_async(message):
    note(message)

first.handler(note_async)
second.handler(note_async)
"""

EACH_FACE = pytest.mark.parametrize(("high", "low"), [("tasks:high", "tasks:low"), ("tasks:first", "tasks:second")])


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path) -> None:
    """tasks.py, in the folder where the commands run."""
    (tmp_path / "tasks.py").write_text(TASKS)


@pytest.fixture
def order(tmp_path: Path) -> Path:
    """The file to which handlers write the queue of their message."""
    return tmp_path / "order"


def fill(server: RedisServer, *names: str, count: int = 5) -> None:
    for name in names:
        with Queue(name, url=server.url) as queue:
            queue.send_many(Outgoing(number) for number in range(count))


def acked(server: RedisServer, name: str) -> int:
    with Queue(name, url=server.url) as queue:
        return queue.stats().acked


@EACH_FACE
def test_strict_starts_with_the_first_target(invoke: Invoke, server: RedisServer, order: Path, high: str, low: str):
    fill(server, "low", "high")
    done = invoke("consume", high, low, "--strict", "--concurrency", "1", "--burst")
    assert done.exit_code == 0, done.stderr
    assert order.read_text().split() == ["high"] * 5 + ["low"] * 5


@EACH_FACE
def test_max_messages_counts_messages_of_all_targets(invoke: Invoke, server: RedisServer, high: str, low: str):
    fill(server, "low", "high")
    done = invoke("consume", f"{high}=5", f"{low}=1", "--max-messages", "6")
    assert done.exit_code == 0, done.stderr
    assert acked(server, "high") + acked(server, "low") == 6


@EACH_FACE
def test_targets_share_one_concurrency(invoke: Invoke, server: RedisServer, high: str, low: str):
    fill(server, "low", "high")
    done = invoke("consume", high, low, "--burst", "--concurrency", "3")
    (started,) = [line for line in done.stderr.splitlines() if "consumer started" in line]
    assert "concurrency=3" in started
    assert "queue='high low'" in started


def test_weights_work_with_exec_and_names_may_have_equals_signs(invoke: Invoke, server: RedisServer):
    names = ("a=b", "a=5", "plain")
    fill(server, *names, count=1)
    done = invoke("consume", "a=b", "a=5=1", "plain=1000", "--exec", "cat >/dev/null", "--burst")
    assert done.exit_code == 0, done.stderr
    assert [acked(server, name) for name in names] == [1, 1, 1]


@pytest.mark.full
def test_processes_have_the_weights(delayq: Run, server: RedisServer):
    fill(server, "low", "high")
    done = delayq("consume", "tasks:high=5", "tasks:low", "--processes", "2", "--burst")
    assert done.returncode == 0, done.stderr
    assert (acked(server, "high"), acked(server, "low")) == (5, 5)


UNUSABLE = [
    (["tasks:high=0"], "0 in tasks:high=0 is not a weight: give a whole number from 1 to 1,000"),
    (["tasks:high=1001"], "1001 in tasks:high=1001 is not a weight"),
    (["tasks:high=-1"], "-1 in tasks:high=-1 is not a weight"),
    (["high=2.5", "--exec", "true"], "if the queue's name is high=2.5, give high=2.5=1"),
    (["tasks:high=5", "tasks:high=1"], "tasks:high is given twice: give it once, with one weight"),
    (
        ["tasks:high=5", "tasks:low", "--strict"],
        "--strict follows the order of the TARGETs: leave out the weight of tasks:high=5",
    ),
    (["tasks:high=5", "tasks:second"], "weights and --strict need queues of one kind, but low of delayq.aio"),
    (["tasks:high", "tasks:second", "--strict"], "weights and --strict need queues of one kind"),
    (["tasks:high=five"], "tasks:high=five does not exist: the queues of tasks are first, high, low, second"),
]


def test_bad_weights_are_explained(invoke: Invoke):
    offenders = []
    for words, named in UNUSABLE:
        done = invoke("consume", *words)
        if (done.exit_code, named in done.stderr, done.stderr.count("\n")) != (2, True, 1):
            offenders.append((words, done.exit_code, done.output))
    assert offenders == []
