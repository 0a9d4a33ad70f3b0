"""Consumers as processes: every message accounted for, poison contained, signals obeyed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delayq import Outgoing, Queue, backoff
from delayq.operations import claim
from tests.harness.proc import children, needs_proc
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from delayq import Consumer, Queue, backoff

lease = float(os.environ.get("LEASE", "1"))
queue = Queue("work", url=sys.argv[1], lease=lease, backoff=backoff.fixed(0.01), max_retries=2)

def handle(message):
    what = message.payload
    if what == "exit":
        os._exit(7)
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    while what == "slow" and not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    if isinstance(what, int) and what % 10 == 0 and message.attempt == 1:
        raise ValueError("every tenth fails at first")

Consumer(queue, handle, concurrency=4).run()
"""

SUPERVISED = """
import sys
from delayq.cli.consume.supervisor import Supervisor
sys.exit(Supervisor([sys.executable, sys.argv[1], sys.argv[2]], processes=2, shutdown_timeout=120).run())
"""

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def queue(own_server: RedisServer) -> Iterator[Queue]:
    with Queue("work", url=own_server.url, backoff=backoff.fixed(0.01), max_retries=2) as queue:
        yield queue


@pytest.fixture
def start(own_server: RedisServer, tmp_path: Path) -> Iterator[Start]:
    """``start(program)``: runs it with the program above and the server's URL, and ends the process after the test."""
    consumer = tmp_path / "consumer.py"
    consumer.write_text(PROGRAM)
    started: list[subprocess.Popen[bytes]] = []

    def run(program: str) -> subprocess.Popen[bytes]:
        arguments = [str(consumer), own_server.url]
        command = [sys.executable, *arguments] if program == PROGRAM else [sys.executable, "-c", program, *arguments]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.full
def test_20000_messages_through_4_processes_are_all_accounted_for(
    own_server: RedisServer, queue: Queue, start: Start
) -> None:
    queue.send("warm-up")
    assert queue.ack(queue.receive()) == [True]
    with own_server.client() as client:
        before = sorted(client.keys())
        # Retries: a pause of the machine takes leases of 1 s away.
        sents = queue.send_many([Outgoing(n, max_retries=50) for n in range(20_000)])
        assert len({sent.id for sent in sents}) == 20_000
        processes = [start(PROGRAM) for _ in range(4)]
        assert eventually(lambda: queue.stats().inside == 0)
        for process in processes:
            process.terminate()
        assert [process.wait(120) for process in processes] == [0, 0, 0, 0]
        stats = queue.stats()
        assert (stats.sent, stats.acked, stats.missing) == (20_001, 20_001, 0)
        assert (
            2_000 - stats.lease_lost <= stats.nacked <= 2_000
        )  # a lease lost early is an attempt, which fails this way
        assert stats.delivered == stats.acked + stats.nacked + stats.released + stats.lease_lost
        lasting = [key for key in sorted(client.keys()) if client.pttl(key) == -1]
        after = [key for key in lasting if not key.endswith((b":timer", b":bell", b":watch"))]
        assert after == [key for key in before if not key.endswith((b":timer", b":bell", b":watch"))]


@pytest.mark.full
@pytest.mark.parametrize("poison", ["exit", "segfault"])
def test_poison_that_kills_its_process_becomes_a_dead_letter_and_the_others_are_handled(
    queue: Queue, start: Start, poison: str
) -> None:
    sent = queue.send(poison)
    supervisor = start(SUPERVISED)
    queue.send_many([Outgoing("fine", delay=n * 0.05, max_retries=50) for n in range(40)])
    assert eventually(lambda: [dead.id for dead in queue.dead.list()] == [sent.id])
    assert eventually(lambda: queue.stats().inside == 1)
    (dead,) = queue.dead.list()
    assert (dead.reason, dead.attempts) == ("consumer-lost", 3)
    stats = queue.stats()
    assert (stats.acked, stats.missing) == (40, 0)
    assert supervisor.poll() is None


@pytest.mark.full
def test_suspect_loses_no_attempts_to_poison_claimed_with_it(queue: Queue, start: Start) -> None:
    queue.send("fine", id="innocent", max_retries=3)
    for attempt in (1, 2):
        (message,) = queue.receive(wait=20, lease=0.01)
        assert message.attempt == attempt
    assert eventually(lambda: queue.execute(claim.recover) == 1)
    queue.send("exit")
    assert start(PROGRAM).wait(120) == 7
    innocent = queue.get("innocent")
    assert innocent is not None
    assert (innocent.state, innocent.attempts) == ("ready", 2)


@needs_proc
def test_supervisor_restarts_a_killed_child(queue: Queue, start: Start) -> None:
    supervisor = start(SUPERVISED)
    assert eventually(lambda: len(children(supervisor.pid)) == 2)
    first, other = children(supervisor.pid)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: len(children(supervisor.pid)) == 2 and first not in children(supervisor.pid))
    assert other in children(supervisor.pid)
    queue.send("fine")
    assert eventually(lambda: queue.stats().acked == 1)


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_supervisor_passes_a_signal_on_and_its_children_finish_running_messages(
    queue: Queue, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("LEASE", "60")  # which a pause of the machine does not take away
    supervisor = start(SUPERVISED)
    queue.send("slow")
    assert eventually(lambda: queue.stats().unack == 1 and len(queue.consumers()) == 2)
    pids = children(supervisor.pid)
    supervisor.send_signal(number)
    assert eventually(lambda: len(children(supervisor.pid)) == 1)  # the other one had nothing to finish
    (tmp_path / "go").touch()
    assert supervisor.wait(120) == 0
    stats = queue.stats()
    assert (stats.acked, stats.inside) == (1, 0)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.full
def test_consumer_frozen_for_longer_than_its_lease_changes_nothing_afterwards(
    queue: Queue, start: Start, tmp_path: Path
) -> None:
    process = start(PROGRAM)
    queue.send("slow", id="slow", max_retries=50)
    assert eventually(lambda: queue.stats().unack == 1)
    process.send_signal(signal.SIGSTOP)
    begun = attempts(queue, "slow")  # a pause of the machine may have taken the lease away earlier
    assert eventually(lambda: [message.attempt for message in queue.receive(lease=600)] == [begun + 1])
    (tmp_path / "go").touch()
    process.send_signal(signal.SIGCONT)
    queue.send("fine")
    assert eventually(lambda: queue.stats().acked == 1)  # it is working again
    process.terminate()
    assert process.wait(120) == 0  # after its late outcome
    info = queue.get("slow")
    assert info is not None
    assert (info.state, info.attempts) == ("unack", begun + 1)


def attempts(queue: Queue, id: str) -> int:
    info = queue.get(id)
    assert info is not None
    return info.attempts
