"""consume --recycle-after and --recycle-memory: processes are replaced, and no message is lost, late or run twice."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke, Run, Start, ended, followed
from tests.harness.proc import children, needs_proc
from tests.harness.waiting import eventually

TASKS = """
import asyncio, os, pathlib, subprocess, time
from delayq import Queue, aio

emails = Queue("emails", max_retries=0)
letters = aio.Queue("emails", max_retries=0)
bloated = Queue("emails", max_retries=0)
KEPT = []

def noted(name, message):
    with open(name, "a") as file:
        file.write(f"{message.payload} {os.getpid()}\\n")

with open("starts", "a") as file:
    file.write(f"start {os.getpid()}\\n")
if pathlib.Path("broken").exists():
    raise SystemExit(3)
while pathlib.Path("hold").exists():
    time.sleep(0.01)

@emails.handler
def deliver(message):
    if message.payload == "grow":
        KEPT.append(b"x" * (300 << 20))
    if message.payload == "slow":
        subprocess.Popen(["sleep", "3600"]) if pathlib.Path("with-program").exists() else None
        noted("slow", message)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
    noted("handled", message)

@letters.handler
async def deliver_later(message):
    noted("handled", message)

@bloated.handler
def deliver_never(message):
    noted("handled", message)

@bloated.middleware.on_start
def load(consumer):
    KEPT.append(b"x" * (300 << 20))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


class Recycling:
    """A supervised consumer, and what it does."""

    def __init__(self, start: Start, folder: Path, *words: str) -> None:
        self.process = start("consume", *words, stdout=None)
        self.log = followed(self.process)
        self.folder = folder

    def times(self, text: str) -> int:
        return sum(text in line for line in list(self.log))

    def has_logged(self, text: str, times: int = 1) -> bool:
        return eventually(lambda: self.times(text) >= times)

    def notes(self, name: str) -> list[tuple[str, int]]:
        path = self.folder / name
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(payload, int(pid)) for payload, pid in lines]

    def pids(self, name: str = "handled") -> list[int]:
        return [pid for _, pid in self.notes(name)]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


Begin = Callable[..., Recycling]


@pytest.fixture
def recycling(start: Start, folder: Path) -> Begin:
    """A consumer that has started, given its words."""

    def begin(*words: str, consumers: int = 1) -> Recycling:
        consumer = Recycling(start, folder, *words)
        assert consumer.has_logged("consumer started", consumers)
        return consumer

    return begin


def send(queue: Queue, *payloads: object) -> None:
    for payload in payloads:
        queue.send(payload)


def acked(queue: Queue, total: int) -> bool:
    return eventually(lambda: queue.stats().acked == total)


@pytest.mark.full
@pytest.mark.parametrize("name", ["emails", "letters"])
def test_consumer_process_is_replaced_after_its_number_of_messages(recycling: Begin, queue: Queue, name: str):
    consumer = recycling(f"tasks:{name}", "--recycle-after", "5")
    send(queue, *range(6))
    assert consumer.has_logged("consumer process recycled")
    assert acked(queue, 6)
    first = consumer.pids()[0]
    assert eventually(lambda: ended(first))
    send(queue, "next")
    assert acked(queue, 7)
    assert [*Counter(consumer.pids()).values()] == [6, 1]
    assert consumer.stop() == 0
    assert consumer.times("consumer process recycled") == 1
    assert consumer.times("died") == 0
    assert re.search(rf"consumer process recycled .*number=0 .*pid={first} ", "".join(consumer.log))
    assert all(map(ended, consumer.pids("starts")))
    assert queue.stats().delivered == 7


@pytest.mark.full
def test_processes_of_a_supervisor_are_replaced_while_messages_come(recycling: Begin, queue: Queue):
    consumer = recycling("tasks:emails", "--processes", "2", "--recycle-after", "20", consumers=2)
    total = 0
    while consumer.times("consumer process recycled") < 4:
        send(queue, *range(total, total + 20))
        total += 20
        assert acked(queue, total)
    assert consumer.stop() == 0
    assert sorted(int(payload) for payload, _ in consumer.notes("handled")) == list(range(total))
    stats = queue.stats()
    # A process that is replaced hands back what it has claimed and not started.
    assert (stats.delivered - stats.released, stats.lease_lost, stats.dead) == (total, 0, 0)
    assert consumer.times("consumer process started") == 2
    assert consumer.times("died") + consumer.times("not renewed") == 0
    assert all(map(ended, consumer.pids("starts")))


@pytest.mark.full
@needs_proc
def test_consumer_process_that_has_grown_is_replaced(recycling: Begin, queue: Queue):
    consumer = recycling("tasks:emails", "--recycle-memory", "250MB")
    send(queue, "x", "grow")
    assert consumer.has_logged("consumer process recycled")
    send(queue, "next")
    assert acked(queue, 3)
    assert [*Counter(consumer.pids()).values()] == [2, 1]
    assert consumer.stop() == 0


@pytest.mark.full
@needs_proc
@pytest.mark.parametrize("words", [[], ["--pool", "process"], ["--processes", "2"]], ids=["", "pool", "processes"])
def test_memory_that_a_new_process_exceeds_is_refused(delayq: Run, words: list[str]):
    done = delayq("consume", "tasks:emails", "--recycle-memory", "10MB", *words)
    assert done.returncode == 2
    assert "recycle_memory 10 MiB is too low: a process uses" in done.stderr
    assert "consumer process recycled" not in done.stderr


@pytest.mark.full
@needs_proc
def test_memory_that_functions_at_the_start_exceed_is_refused(delayq: Run):
    done = delayq("consume", "tasks:bloated", "--recycle-memory", "250MB")
    assert done.returncode == 2
    assert "--recycle-memory: recycle_memory 250 MiB is too low" in done.stderr
    assert "renewed" not in done.stderr


@pytest.mark.full
@needs_proc
def test_no_message_waits_for_the_start_of_a_successor(recycling: Begin, queue: Queue, folder: Path):
    consumer = recycling("tasks:emails", "--recycle-after", "1")
    (folder / "hold").touch()
    send(queue, "first")
    assert eventually(lambda: len(consumer.notes("starts")) == 2)
    send(queue, *range(30))
    assert acked(queue, 31)
    assert consumer.times("consumer process recycled") == 0
    (folder / "hold").unlink()
    assert consumer.has_logged("consumer process recycled")
    send(queue, "last")
    assert acked(queue, 32)
    pids = [pid for payload, pid in consumer.notes("handled") if payload != "last"]
    assert len(set(pids)) == 1
    assert consumer.stop() == 0


@pytest.mark.full
def test_replaced_process_waits_for_its_handler_beyond_the_shutdown_timeout(
    recycling: Begin, queue: Queue, folder: Path
):
    consumer = recycling("tasks:emails", "--recycle-after", "1", "--shutdown-timeout", "0s", "-c", "2")
    send(queue, "slow", "quick")
    assert consumer.has_logged("consumer process recycled")
    ((_, first),) = consumer.notes("slow")
    assert eventually(lambda: queue.stats().acked == 1)
    send(queue, "next")
    assert acked(queue, 2)
    assert consumer.notes("handled")[-1][1] != first
    (folder / "go").touch()
    assert acked(queue, 3)
    assert eventually(lambda: ended(first))
    assert ("slow", first) in consumer.notes("handled")
    assert queue.stats().delivered == 3
    assert consumer.stop() == 0


@pytest.mark.full
@pytest.mark.parametrize("goes", [True, False], ids=["that ends", "that does not end"])
def test_stop_waits_for_the_handler_of_a_replaced_process(recycling: Begin, queue: Queue, folder: Path, goes: bool):
    timeout = "100s" if goes else "500ms"
    consumer = recycling("tasks:emails", "--recycle-after", "1", "--shutdown-timeout", timeout, "-c", "2")
    queue.send("slow", id="slow")
    send(queue, "quick")
    assert consumer.has_logged("consumer process recycled")
    consumer.process.send_signal(signal.SIGTERM)
    if goes:
        (folder / "go").touch()
    assert consumer.process.wait(120) == 0
    stats = queue.stats()
    assert (stats.acked, stats.ready, stats.unack, stats.dead) == ((2, 0, 0, 0) if goes else (1, 1, 0, 0))
    assert all(map(ended, consumer.pids("starts")))


@pytest.mark.full
@needs_proc
def test_stop_while_a_successor_starts_leaves_no_process(recycling: Begin, queue: Queue, folder: Path):
    consumer = recycling("tasks:emails", "--recycle-after", "1")
    (folder / "hold").touch()
    send(queue, "x")
    assert eventually(lambda: len(consumer.notes("starts")) == 2)
    assert consumer.stop() == 0
    assert all(map(ended, consumer.pids("starts")))
    assert (queue.stats().acked, queue.stats().inside) == (1, 0)


@pytest.mark.full
@needs_proc
def test_successor_takes_the_place_of_a_process_that_is_killed_meanwhile(recycling: Begin, queue: Queue, folder: Path):
    consumer = recycling("tasks:emails", "--recycle-after", "1")
    (folder / "hold").touch()
    send(queue, "x")
    assert eventually(lambda: len(consumer.notes("starts")) == 2)
    first, second = consumer.pids("starts")
    os.kill(first, signal.SIGKILL)
    assert consumer.has_logged("consumer process died, restarting")
    (folder / "hold").unlink()
    send(queue, "next")
    assert acked(queue, 2)
    assert consumer.pids() == [first, second]
    assert consumer.times("consumer process started") == 1
    assert consumer.stop() == 0


@pytest.mark.full
@needs_proc
def test_replaced_process_that_is_killed_takes_its_programs_with_it(recycling: Begin, queue: Queue, folder: Path):
    (folder / "with-program").touch()
    consumer = recycling("tasks:emails", "--recycle-after", "1", "-c", "2")
    send(queue, "slow", "quick")
    assert consumer.has_logged("consumer process recycled")
    ((_, first),) = consumer.notes("slow")
    programs = children(first)
    assert programs
    os.kill(first, signal.SIGKILL)
    assert consumer.has_logged("recycled consumer process died")
    assert eventually(lambda: all(map(ended, programs)))
    send(queue, "next")
    assert acked(queue, 2)
    assert consumer.times("consumer process died, restarting") == 0
    assert consumer.stop() == 0


@pytest.mark.full
@needs_proc
def test_killed_supervisor_leaves_nothing_running_during_a_renewal(recycling: Begin, queue: Queue):
    consumer = recycling("tasks:emails", "--recycle-after", "1", "-c", "2", "--shutdown-timeout", "500ms")
    send(queue, "slow", "quick")
    assert consumer.has_logged("consumer process recycled")
    consumer.process.kill()
    assert eventually(lambda: all(map(ended, consumer.pids("starts"))))
    stats = queue.stats()
    assert (stats.acked, stats.ready, stats.unack) == (1, 1, 0)


@pytest.mark.full
@needs_proc
@pytest.mark.parametrize("victim", ["consumer", "handler"])
def test_kill_while_a_process_of_a_pool_is_replaced_leaves_nothing_running(
    recycling: Begin, queue: Queue, folder: Path, victim: str
):
    consumer = recycling("tasks:emails", "--pool", "process", "-c", "1", "--recycle-after", "1")
    assert eventually(lambda: len(consumer.notes("starts")) == 2)  # the consumer, and its process
    (folder / "hold").touch()
    queue.send("slow", max_retries=0)
    assert eventually(lambda: len(consumer.notes("starts")) == 3)
    assert eventually(lambda: len(consumer.notes("slow")) == 1)
    if victim == "consumer":
        consumer.process.kill()
        assert eventually(lambda: all(map(ended, consumer.pids("starts"))))
        return
    os.kill(consumer.pids("slow")[0], signal.SIGKILL)
    assert eventually(lambda: queue.stats().dead == 1)
    assert eventually(lambda: len(consumer.notes("starts")) == 4)
    (folder / "hold").unlink()
    send(queue, "next")
    assert acked(queue, 1)
    assert consumer.pids() == [consumer.pids("starts")[3]]
    assert consumer.stop() == 0
    assert all(map(ended, consumer.pids("starts")))


@pytest.mark.full
def test_process_goes_on_while_no_successor_can_start(recycling: Begin, queue: Queue, folder: Path):
    consumer = recycling("tasks:emails", "--recycle-after", "1")
    (folder / "broken").touch()
    send(queue, "x")
    assert consumer.has_logged("consumer process not recycled, retrying", 2)
    send(queue, "y")
    assert acked(queue, 2)
    (folder / "broken").unlink()
    assert consumer.has_logged("consumer process recycled")
    assert len(set(consumer.pids())) == 1
    assert consumer.times("died") + consumer.times("given up") == 0
    assert consumer.stop() == 0


@pytest.mark.full
def test_burst_ends_although_processes_are_replaced(delayq: Run, queue: Queue, folder: Path):
    send(queue, *range(200))
    done = delayq("consume", "tasks:emails", "--burst", "--recycle-after", "1", "-c", "1")
    assert done.returncode == 0
    lines = (folder / "handled").read_text().splitlines()
    assert sorted(int(line.split()[0]) for line in lines) == list(range(200))
    assert "retrying" not in done.stderr


@pytest.mark.full
def test_changed_file_restarts_processes_that_are_being_replaced(recycling: Begin, queue: Queue, folder: Path):
    consumer = recycling("tasks:emails", "--reload", "--recycle-after", "1", "-c", "2")
    assert consumer.has_logged("watching Python files")
    send(queue, "slow", "quick")
    assert consumer.has_logged("consumer process recycled")
    (folder / "other.py").touch()
    assert consumer.has_logged("restarting")
    (folder / "go").touch()
    assert consumer.has_logged("consumer process started", 2)
    send(queue, "next")
    assert acked(queue, 3)
    assert queue.stats().delivered == 3
    assert consumer.stop() == 0
    assert all(map(ended, consumer.pids("starts")))


REFUSED = {
    ("emails", "--exec", "true", "--recycle-after", "5"): "--recycle-after needs MODULE:QUEUE: with --exec",
    ("emails", "--exec", "true", "--recycle-memory", "5m"): "--recycle-memory needs MODULE:QUEUE: with --exec",
    ("tasks:emails", "--recycle-after", "0"): "0 is not in the range",
    ("tasks:emails", "--recycle-memory", "0"): "'0' leaves a process no memory: leave the option out for no limit",
    ("tasks:emails", "--recycle-memory", "much"): "'much' is not a number of bytes: write it as in 300, 2k, 512m",
    ("tasks:emails", "--recycle-after", "5", "--max-messages", "9"): "--recycle-after with --max-messages needs --pool",
    ("tasks:emails", "--recycle-after", "5", "--reload", "--metrics-port", "0"): "leave out --recycle-after and --rec",
    ("--topic", "t", "--group", "g", "tasks:deliver", "--recycle-after", "5"): "--recycle-after applies only to queues",
}


def test_impossible_options_are_refused(invoke: Invoke):
    results = {words: invoke("consume", *words) for words in REFUSED}
    offenders = {words: each.output for words, each in results.items() if REFUSED[words] not in each.stderr}
    assert offenders == {}
    assert {each.exit_code for each in results.values()} == {2}
