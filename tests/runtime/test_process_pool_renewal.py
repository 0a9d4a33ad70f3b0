"""Processes of a pool that are replaced by new ones: nothing is lost, late or handled twice."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import Consumer, Outgoing, Queue, aio, backoff
from delayq.errors import InvalidInput
from delayq.runtime import recycling
from delayq.runtime.process_pool import pool
from delayq.runtime.process_pool.pool import ProcessPool
from delayq.runtime.process_pool.slot import Slot
from delayq.runtime.recycling import Recycling, resident_bytes
from tests.harness import pooled
from tests.harness.proc import children, needs_proc
from tests.harness.servers import RedisServer
from tests.harness.stores import is_alive
from tests.harness.waiting import eventually

Lines = list[MutableMapping[str, Any]]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(pooled.WHERE, str(tmp_path))
    return tmp_path


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url, backoff=backoff.fixed(0), max_retries=0) as queue:
        yield queue


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines that are logged."""
    with capture_logs() as lines:
        yield lines


def count(lines: Lines, event: str) -> int:
    return sum(line["event"] == event for line in lines)


def renewed(lines: Lines, times: int) -> bool:
    return eventually(lambda: count(lines, "pool process recycled") >= times)


Running = Callable[..., Any]


@pytest.fixture(params=["sync", pytest.param("aio", marks=pytest.mark.full)])
def running(request: pytest.FixtureRequest, queue: Queue, redis_server: RedisServer) -> Running:
    """A sync or async consumer that runs a handler in one process, for as long as a `with` block."""

    @contextmanager
    def sync(handler: Any, **options: Any) -> Iterator[None]:
        consumer = Consumer(queue, handler, pool="process", **{"concurrency": 1} | options)
        consumer.start()
        try:
            yield
        finally:
            consumer.stop()

    @contextmanager
    def awaited(handler: Any, **options: Any) -> Iterator[None]:
        ends = threading.Event()

        async def run() -> None:
            async with aio.Queue("jobs", url=redis_server.url, backoff=backoff.fixed(0), max_retries=0) as queue:
                consumer = aio.Consumer(queue, handler, pool="process", **{"concurrency": 1} | options)
                await consumer.start()
                await asyncio.to_thread(ends.wait)
                await consumer.stop()

        thread = threading.Thread(target=asyncio.run, args=(run(),))
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    return sync if request.param == "sync" else awaited


def handled(queue: Queue, total: int) -> bool:
    return eventually(lambda: queue.stats().acked == total)


def test_process_is_replaced_after_its_number_of_messages(queue: Queue, running: Running, lines: Lines) -> None:
    """Also while nothing else is due."""
    with running(pooled.fine, recycle_after=4):
        for turn in (1, 2):
            queue.send_many([Outgoing("x") for _ in range(4)])
            assert renewed(lines, turn)
        queue.send("x")
        assert handled(queue, 9)
    assert sorted(Counter(pid for _, pid in pooled.notes("fine")).values()) == [1, 4, 4]
    assert not any(is_alive(pid) for _, pid in pooled.notes("fine"))
    pids = list(dict.fromkeys(pid for _, pid in pooled.notes("fine")))
    logged = [line for line in lines if line["event"] == "pool process recycled"]
    assert [(line["pid"], line["successor"], line["messages"]) for line in logged] == [
        (pids[0], pids[1], 4),
        (pids[1], pids[2], 4),
    ]
    assert {line["log_level"] for line in logged} == {"info"}
    assert count(lines, "pool process died, restarting") == 0


def test_no_message_waits_for_the_start_of_a_successor(
    queue: Queue, running: Running, lines: Lines, folder: Path
) -> None:
    with running(pooled.fine, recycle_after=1, initializer=pooled.begin_slowly):
        queue.send("x")
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
        queue.send_many([Outgoing("x") for _ in range(30)])
        assert handled(queue, 31)
        assert count(lines, "pool process recycled") == 0
        (folder / "begin").touch()
        assert renewed(lines, 1)
        queue.send("x")
        assert handled(queue, 32)
    assert [*Counter(pid for _, pid in pooled.notes("fine")).values()] == [31, 1]


@pytest.mark.full
def test_running_handler_finishes_before_its_process_is_replaced(
    queue: Queue, running: Running, lines: Lines, folder: Path
) -> None:
    (folder / "begin").touch()
    with running(pooled.slow, recycle_after=1, initializer=pooled.begin_slowly):
        queue.send("x")
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
        (folder / "go").touch()
        assert renewed(lines, 1)
        queue.send("x")
        assert handled(queue, 2)
    started, ended = pooled.notes("started"), pooled.notes("ended")
    assert started == ended
    assert len({pid for _, pid in started}) == 2
    assert (queue.stats().delivered, queue.stats().dead) == (2, 0)


@pytest.mark.full
@needs_proc
def test_process_that_has_grown_is_replaced(queue: Queue, running: Running, lines: Lines) -> None:
    with running(pooled.grow, recycle_memory=250 << 20):
        queue.send_many([Outgoing(1), Outgoing(1)])
        assert handled(queue, 2)
        queue.send(300)
        assert renewed(lines, 1)
        queue.send(1)
        assert handled(queue, 4)
    (line,) = [line for line in lines if line["event"] == "pool process recycled"]
    assert (line["messages"], line["memory"] > 250 << 20) == (3, True)
    assert [*Counter(pid for _, pid in pooled.notes("grow")).values()] == [3, 1]


@needs_proc
def test_memory_that_a_new_process_exceeds_is_refused(queue: Queue) -> None:
    queue.send("x")
    consumer = Consumer(queue, pooled.fine, pool="process", concurrency=2, recycle_memory=10 << 20)
    with pytest.raises(InvalidInput, match=r"recycle_memory 10 MiB is too low: a process uses .* MiB before its first"):
        consumer.drain()
    assert (queue.stats().inside, queue.stats().delivered) == (1, 0)


@pytest.mark.full
def test_process_that_is_killed_while_its_successor_hangs_is_restarted(
    queue: Queue, running: Running, lines: Lines, folder: Path
) -> None:
    """As any process: only its own delivery fails, and nothing waits for the successor, which is killed."""
    queue.send("x", id="lost")
    with running(pooled.slow, recycle_after=1, initializer=pooled.begin_slowly):
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
        assert eventually(lambda: bool(pooled.notes("started")))
        ((_, first),) = pooled.notes("started")
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: len(pooled.notes("begin")) == 3, seconds=60)
        assert not is_alive(pooled.notes("begin")[1][1])
        (folder / "go").touch()
        queue.send("x", id="next")
        (folder / "begin").touch()
        assert handled(queue, 1)
        ((_, second),) = pooled.notes("ended")
    assert second == pooled.notes("begin")[2][1]
    assert queue.stats().dead == 1
    assert [letter.error for letter in queue.dead.list()] == ["ProcessDied: its process was killed by SIGKILL"]
    assert queue.stats().delivered == 2
    assert count(lines, "pool process not started, retrying") == 0


@pytest.mark.full
def test_process_that_is_killed_while_its_successor_waits_is_replaced_by_it(
    queue: Queue, running: Running, lines: Lines, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No third process starts."""
    slots: list[Slot] = []
    note_ready = ProcessPool._note_ready

    def noted(pool: ProcessPool[Any], slot: Slot) -> None:
        slots.append(slot)
        note_ready(pool, slot)

    monkeypatch.setattr(ProcessPool, "_note_ready", noted)
    (folder / "begin").touch()
    queue.send("x", id="lost")
    with running(pooled.slow, recycle_after=1, initializer=pooled.begin_slowly):
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
        assert eventually(lambda: bool(pooled.notes("started")))
        assert eventually(lambda: slots[0]._successor is not None)
        os.kill(pooled.notes("started")[0][1], signal.SIGKILL)
        assert renewed(lines, 1)
        (folder / "go").touch()
        queue.send("x", id="next")
        assert handled(queue, 1)
        ((_, second),) = pooled.notes("ended")
    assert second == pooled.notes("begin")[1][1]
    assert queue.stats().dead == 1


@pytest.mark.full
def test_successor_that_hangs_is_killed_and_started_again(
    queue: Queue, running: Running, lines: Lines, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes are replaced in the end: one that hangs does not hold up the other for ever."""
    monkeypatch.setattr(pool, "START_SECONDS", 0.5)
    with running(pooled.meet, recycle_after=1, concurrency=2, initializer=pooled.begin_if_not_held):
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
        (folder / "hold").touch()
        queue.send_many([Outgoing("x"), Outgoing("x")])
        assert eventually(lambda: count(lines, "pool process not started, retrying") >= 3, seconds=60)
        assert handled(queue, 2)
        monkeypatch.setattr(pool, "START_SECONDS", 60)
        (folder / "hold").unlink()
        assert renewed(lines, 2)
    logged = [line for line in lines if line["event"] == "pool process not started, retrying"]
    assert {line["error"] for line in logged} == {"it was not ready after 0.5 s, and was killed"}
    assert not any(is_alive(pid) for _, pid in pooled.notes("begin"))


@pytest.mark.full
def test_successor_that_is_killed_while_it_waits_is_started_again(
    queue: Queue, running: Running, lines: Lines, folder: Path
) -> None:
    (folder / "begin").touch()
    queue.send("x")
    with running(pooled.slow, recycle_after=1, initializer=pooled.begin_slowly):
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
        os.kill(pooled.notes("begin")[1][1], signal.SIGKILL)
        assert eventually(lambda: not is_alive(pooled.notes("begin")[1][1]))
        (folder / "go").touch()
        assert renewed(lines, 1)
        queue.send("x")
        assert handled(queue, 2)
    begun = [pid for _, pid in pooled.notes("begin")]
    assert [pid for _, pid in pooled.notes("ended")] == [begun[0], begun[2]]
    assert queue.stats().delivered == 2


@pytest.mark.full
def test_process_goes_on_while_no_successor_can_start(
    queue: Queue, running: Running, lines: Lines, folder: Path
) -> None:
    with running(pooled.fine, recycle_after=3, initializer=pooled.begin_if_allowed):
        queue.send("x")
        assert handled(queue, 1)
        (folder / "refuse").touch()
        queue.send_many([Outgoing("x") for _ in range(5)])
        assert eventually(lambda: count(lines, "pool process not started, retrying") >= 2)
        assert handled(queue, 6)
        (folder / "refuse").unlink()
        assert renewed(lines, 1)
    assert len({pid for _, pid in pooled.notes("fine")}) == 1


@pytest.mark.full
@needs_proc
def test_process_goes_on_while_successors_are_too_large_from_the_start(
    queue: Queue, running: Running, lines: Lines, folder: Path
) -> None:
    options = {"recycle_after": 1, "recycle_memory": 250 << 20, "initializer": pooled.begin_larger}
    with running(pooled.fine, **options):
        queue.send("x")
        assert eventually(lambda: count(lines, "pool process not started, retrying") >= 1)
        queue.send("x")
        assert handled(queue, 2)
        assert count(lines, "pool process recycled") == 0
        (folder / "small").touch()
        assert renewed(lines, 1)
    (error,) = {line["error"] for line in lines if line["event"] == "pool process not started, retrying"}
    assert "recycle_memory 250 MiB is too low" in error


@needs_proc
def test_stop_while_a_successor_starts_leaves_no_process(queue: Queue, running: Running, folder: Path) -> None:
    before = set(children(os.getpid()))
    queue.send("x")
    with running(pooled.slow, recycle_after=1, initializer=pooled.begin_slowly):
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
        assert eventually(lambda: bool(pooled.notes("started")))
        (folder / "go").touch()
    assert (queue.stats().acked, queue.stats().delivered) == (1, 1)
    assert not any(is_alive(pid) for _, pid in pooled.notes("begin"))
    assert set(children(os.getpid())) - before <= set(lasting(before))


def lasting(before: set[int]) -> Iterator[int]:
    """The processes that stay until this program ends: the one that ends groups after a kill, and Python's tracker."""
    for pid in set(children(os.getpid())) - before:
        if re.search("watch_groups|resource_tracker", Path(f"/proc/{pid}/cmdline").read_text()):
            yield pid


@needs_proc
def test_stop_while_a_successor_waits_for_a_handler_leaves_no_process(
    queue: Queue, running: Running, folder: Path
) -> None:
    (folder / "begin").touch()
    queue.send("x")
    with running(pooled.slow, recycle_after=1, initializer=pooled.begin_slowly, shutdown_timeout=0):
        assert eventually(lambda: len(pooled.notes("begin")) == 2)
    assert (queue.stats().ready, queue.stats().unack) == (1, 0)
    assert not any(is_alive(pid) for _, pid in pooled.notes("begin"))


@pytest.mark.full
def test_messages_run_once_while_processes_are_replaced_all_the_time(
    queue: Queue, running: Running, lines: Lines
) -> None:
    sent: list[str] = []
    with running(pooled.fine, recycle_after=20, concurrency=3):
        while count(lines, "pool process recycled") < 8:
            more = [f"m{len(sent) + n}" for n in range(50)]
            queue.send_many([Outgoing("x", id=name) for name in more])
            sent += more
            assert handled(queue, len(sent))
    assert sorted(name for name, _ in pooled.notes("fine")) == sorted(sent)
    assert (queue.stats().delivered, queue.stats().acked) == (len(sent), len(sent))
    pids = {pid for _, pid in pooled.notes("fine")}
    assert not any(map(is_alive, pids))
    assert {line["event"] for line in lines} == {"consumer started", "pool process recycled", "consumer stopped"}


def test_process_goes_on_while_the_system_has_no_thread_for_its_renewal(
    monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    slot = Slot(SimpleNamespace(pid=1), Recycling(1, None))  # type: ignore[arg-type]

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        slot.renew(lambda _: None, "renewal")
    assert lines == [{"event": "pool process not recycled", "error": "can't start new thread", "log_level": "error"}]
    slot.renew(Slot.renewed, "renewal")
    slot.close()
    assert not slot.is_renewing


REFUSED: dict[str, dict[str, Any]] = {
    "recycle_after 0 is not a whole number from 1 to": {"recycle_after": 0},
    "recycle_after True is not a whole number": {"recycle_after": True},
    "recycle_after 1.5 is not a whole number": {"recycle_after": 1.5},
    "recycle_memory -1 is not a whole number": {"recycle_memory": -1},
    "recycle_memory '500MB' is not a whole number": {"recycle_memory": "500MB"},
    'recycle_after 5 renews pool processes.*also give pool="process"': {"recycle_after": 5, "pool": "thread"},
    "recycle_memory 5 renews pool processes": {"recycle_memory": 5, "pool": "thread"},
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_impossible_limits_are_refused(queue: Queue, wrong: str) -> None:
    options = {"pool": "process"} | REFUSED[wrong]
    with pytest.raises(InvalidInput, match=wrong):
        Consumer(queue, pooled.fine, **options)
    with pytest.raises(InvalidInput, match=wrong):
        aio.Consumer(aio.Queue("jobs", url="redis://127.0.0.1:1/0"), pooled.fine, **options)


def test_memory_is_refused_where_the_system_does_not_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recycling, "_STATM", "/nowhere/{}")
    with pytest.raises(InvalidInput, match=r"recycle_memory 5 needs /proc.*: give recycle_after instead"):
        Recycling.of(None, 5)
    assert Recycling.of(5, None) == (5, None)


def test_limits_of_processes_differ_by_a_tenth_at_most() -> None:
    drawn = [Recycling(1000, 10**9).drawn() for _ in range(200)]
    assert all(
        900 <= each.after <= 1100 and 9e8 <= each.memory <= 1.1e9 for each in drawn if each.after and each.memory
    )
    assert len({each.after for each in drawn}) > 50
    assert len({each.memory for each in drawn}) > 50
    assert {Recycling(1, None).drawn() for _ in range(200)} == {(1, None)}


@needs_proc
def test_resident_memory_is_that_of_the_process() -> None:
    before = resident_bytes(os.getpid())
    kept = b"x" * (64 << 20)
    after = resident_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert 48 << 20 < after - before < 96 << 20
    assert kept
    assert resident_bytes(2**22 + 1) is None
