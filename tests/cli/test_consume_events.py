"""consume --events: the ledger of each TARGET."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from delayq import Outgoing, Queue
from tests.cli.conftest import Invoke, Start
from tests.harness import bookkeeping
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

TASKS = """
import delayq
from delayq import aio

emails, quiet, letters = delayq.Queue("emails"), delayq.Queue("emails", events=False), aio.Queue("emails")
others, batched = aio.Queue("others"), delayq.Queue("emails")

@emails.handler
@quiet.handler
def handle(message):
    pass

@letters.handler
@others.handler
async def handle_async(message):
    pass

@batched.batch_handler(max_messages=5)
def handle_all(messages):
    pass
"""


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path) -> None:
    """tasks.py, in the folder where the commands run."""
    (tmp_path / "tasks.py").write_text(TASKS)


def events(queue: Queue) -> list[str]:
    return sorted(entry["event"] for entry in bookkeeping.entries(queue))


@pytest.mark.parametrize(
    "words",
    [
        ["tasks:emails"],
        ["tasks:letters"],
        ["tasks:batched"],
        ["emails", "--exec", "true"],
        pytest.param(["tasks:emails", "--pool", "process"], marks=pytest.mark.full),
        pytest.param(["tasks:emails", "-p", "2"], marks=pytest.mark.full),
    ],
    ids=" ".join,
)
def test_each_step_of_a_message_is_recorded(invoke: Invoke, queue: Queue, words: list[str]):
    queue.send_many(Outgoing(number) for number in range(4))
    done = invoke("consume", *words, "--events", "--burst")
    assert done.exit_code == 0, done.stderr
    assert "warning" not in done.stderr
    assert queue.configuration().events == 100_000
    assert events(queue) == sorted(["promoted", "delivered", "acked"] * 4)


def test_without_the_option_there_is_no_ledger(invoke: Invoke, queue: Queue):
    queue.send("x")
    assert invoke("consume", "tasks:emails", "--burst").exit_code == 0
    assert queue.configuration().events is None
    assert events(queue) == []


def test_existing_ledger_keeps_its_length(invoke: Invoke, queue: Queue):
    queue.configure(events=7000)
    queue.send("x")
    assert invoke("consume", "tasks:emails", "--events", "--burst").exit_code == 0
    assert queue.configuration().events == 7000
    assert bookkeeping.check(queue)["acked"] == 1


def test_module_can_turn_the_ledger_off(invoke: Invoke, queue: Queue):
    queue.send("x")
    assert invoke("consume", "tasks:quiet", "--events", "--burst").exit_code == 0
    assert queue.configuration().events is None


@pytest.mark.parametrize("words", [["emails", "others", "--exec", "true"], ["tasks:letters", "tasks:others"]])
def test_each_of_several_targets_has_a_ledger(invoke: Invoke, server: RedisServer, queue: Queue, words: list[str]):
    with Queue("others", url=server.url) as other:
        for each in (queue, other):
            each.send("x")
        assert invoke("consume", *words, "--events", "--burst").exit_code == 0
        for each in (queue, other):
            assert events(each) == ["acked", "delivered", "promoted"]


@pytest.mark.full
def test_operator_turns_the_ledger_off_while_consumers_run(start: Start, queue: Queue):
    consumer = start("consume", "emails", "--exec", "true", "--events")
    queue.send("x")
    assert eventually(lambda: queue.stats().acked == 1)
    queue.configure(events=False)
    before = len(bookkeeping.entries(queue))
    queue.send("x")
    assert eventually(lambda: queue.stats().acked == 2)
    assert queue.configuration().events is None
    assert len(bookkeeping.entries(queue)) == before
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(120) == 0
