"""A consumer with processes, and signals: running handlers finish, and no process outlives the consumer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delayq import Queue, backoff
from tests.harness import pooled
from tests.harness.servers import RedisServer
from tests.harness.stores import is_alive
from tests.harness.waiting import eventually

SYNC = """
import sys
from delayq import Consumer, Queue
from tests.harness import pooled

if __name__ == "__main__":
    queue = Queue("jobs", url=sys.argv[1], max_retries=1)
    Consumer(queue, getattr(pooled, sys.argv[2]), pool="process", concurrency=2).run()
"""

ASYNC = """
import asyncio, sys
from delayq.aio import Consumer, Queue
from tests.harness import pooled

async def main():
    async with Queue("jobs", url=sys.argv[1], max_retries=1) as queue:
        await Consumer(queue, getattr(pooled, sys.argv[2]), pool="process", concurrency=2).run()

if __name__ == "__main__":
    asyncio.run(main())
"""

ROOT = Path(__file__).parents[2]

STARTED = """
import sys
from delayq import Consumer, Queue
from tests.harness import pooled
from tests.harness.waiting import eventually

if __name__ == "__main__":
    queue = Queue("jobs", url=sys.argv[1], max_retries=1)
    Consumer(queue, getattr(pooled, sys.argv[2]), pool="process", concurrency=2).start()
    assert eventually(lambda: pooled.notes("started") != [])
    pooled.note("leaving")
"""

UNGUARDED_SYNC = """
import sys
from delayq import Consumer, Queue
from tests.harness import pooled

queue = Queue("jobs", url=sys.argv[1])
queue.send("x")
Consumer(queue, pooled.fine, pool="process", concurrency=1, timeout=5).drain()
"""

UNGUARDED_ASYNC = """
import asyncio, sys
from delayq.aio import Consumer, Queue
from tests.harness import pooled

async def main():
    async with Queue("jobs", url=sys.argv[1]) as queue:
        await queue.send("x")
        await Consumer(queue, pooled.fine, pool="process", concurrency=1, timeout=5).drain()

asyncio.run(main())
"""

Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url, backoff=backoff.fixed(0), max_retries=1) as queue:
        yield queue


@pytest.fixture(params=[SYNC, pytest.param(ASYNC, marks=pytest.mark.full)], ids=["sync", "aio"])
def start(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """``start(handler)``: a consumer program that leads its own process group, killed after the test."""
    monkeypatch.setenv(pooled.WHERE, str(tmp_path))
    program = tmp_path / "program.py"
    program.write_text(request.param)
    started: list[subprocess.Popen[bytes]] = []

    def run(handler: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"}
        command = [sys.executable, str(program), redis_server.url, handler]
        started.append(subprocess.Popen(command, env=environment, process_group=0))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def ended(pid: int) -> bool:
    """Whether a process has ended, even if nobody has waited for it."""
    return not is_alive(pid)


def running(name: str = "started") -> int:
    """Wait until a handler has recorded that it runs; return its process."""
    assert eventually(lambda: bool(pooled.notes(name)))
    return pooled.notes(name)[0][1]


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.full),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.full),
    ],
    ids=["SIGTERM", "SIGTERM to all of its group, as a service manager does", "SIGINT to all, as a terminal does"],
)
def test_signal_lets_a_running_handler_finish(
    queue: Queue, start: Start, tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    queue.send("x")
    process = start("slow")
    handler = running()
    os.kill(process.pid, number)
    if to_all:
        os.kill(handler, number)
    (tmp_path / "go").touch()
    assert process.wait(120) == 0
    assert len(pooled.notes("ended")) == 1
    assert queue.stats().acked == 1
    assert ended(handler)


@pytest.mark.full
def test_second_signal_ends_everything_at_once(queue: Queue, start: Start) -> None:
    queue.send("x")
    process = start("slow")
    handler = running()
    assert not ended(handler)
    for number in (signal.SIGTERM, signal.SIGINT):  # a different one: two of the same may arrive as one
        process.send_signal(number)
    assert process.wait(120) == 0
    assert eventually(lambda: ended(handler))
    assert pooled.notes("ended") == []
    assert queue.stats().unack == 1  # the message comes again when its lease ends


def test_no_process_outlives_a_killed_consumer(queue: Queue, start: Start, tmp_path: Path) -> None:
    queue.send("x")
    process = start("slow_with_program")
    handler = running()
    program = int((tmp_path / "program").read_text())
    assert not ended(handler)
    assert not ended(program)
    process.kill()
    assert eventually(lambda: ended(handler))
    assert eventually(lambda: ended(program))


@pytest.mark.full
@pytest.mark.parametrize("start", [STARTED], indirect=True, ids=["sync"])
def test_program_that_ends_lets_a_running_handler_finish(queue: Queue, start: Start, tmp_path: Path) -> None:
    queue.send("x")
    process = start("slow")
    handler = running()
    running("leaving")
    (tmp_path / "go").touch()
    assert process.wait(120) == 0
    assert len(pooled.notes("ended")) == 1
    assert queue.stats().acked == 1
    assert ended(handler)


@pytest.mark.full
@pytest.mark.parametrize("start", [UNGUARDED_SYNC, UNGUARDED_ASYNC], ids=["sync", "aio"], indirect=True)
def test_program_without_a_main_guard_ends_and_says_what_is_missing(
    queue: Queue, start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    assert start("-").wait(120) == 1
    said = capfd.readouterr().err
    assert "InvalidInput: a pool process imports your program" in said
    assert 'under `if __name__ == "__main__":`' in said
    assert "InvalidInput: the handler cannot be run in a process: its process ended with exit code 1" in said
    assert "Exception in thread" not in said
    assert queue.stats().delivered == 0
