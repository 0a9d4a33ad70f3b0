"""Handlers in processes: they run side by side, and one that dies or takes too long fails only its own delivery."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Consumer, Outgoing, Queue, aio, backoff
from delayq.errors import InvalidInput
from delayq.model.message import Message
from delayq.runtime.process_pool import pool
from delayq.testing.served_by import served_by
from tests.harness import broken_in_child, pooled
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


class Ran(NamedTuple):
    """What a consumer reports about its run."""

    handled: int
    failed: int
    overran: int


Drain = Callable[..., Ran]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(pooled.WHERE, str(tmp_path))
    return tmp_path


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url, backoff=backoff.fixed(0), max_retries=0) as queue:
        yield queue


@pytest.fixture(params=["sync", pytest.param("aio", marks=pytest.mark.full)])
def drain(request: pytest.FixtureRequest, queue: Queue, redis_server: RedisServer) -> Drain:
    """``drain(handler, …)``: a sync or async consumer handles everything that is due, in two processes."""

    def of(consumer: Any) -> Ran:
        return Ran(consumer.handled, consumer.failed, consumer.overran)

    def sync(handler: Any, **options: Any) -> Ran:
        consumer = Consumer(queue, handler, pool="process", **{"concurrency": 2} | options)
        consumer.drain()
        return of(consumer)

    def awaited(handler: Any, **options: Any) -> Ran:
        async def run() -> Ran:
            async with aio.Queue("jobs", url=redis_server.url, backoff=backoff.fixed(0), max_retries=0) as queue:
                consumer = aio.Consumer(queue, handler, pool="process", **{"concurrency": 2} | options)
                await consumer.drain()
                return of(consumer)

        return asyncio.run(run())

    return sync if request.param == "sync" else awaited


@pytest.mark.parametrize("drain", [pytest.param("sync", marks=pytest.mark.full), "aio"], indirect=True)
def test_handlers_run_side_by_side_in_processes_that_are_initialized_once(queue: Queue, drain: Drain) -> None:
    queue.send_many([Outgoing("x"), Outgoing("y")])
    assert drain(pooled.meet, initializer=pooled.begin) == (2, 0, 0)
    pids = {pid for _, pid in pooled.notes("meet")}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert sorted(pid for _, pid in pooled.notes("begin")) == sorted(pids)


def test_handler_over_its_time_limit_is_killed_with_its_process(queue: Queue, drain: Drain) -> None:
    queue.send("computes", id="stuck")
    assert drain(pooled.stuck_at_first, timeout=0.5) == (1, 1, 1)
    (dead,) = queue.dead.list()
    assert (dead.id, dead.error) == (
        "stuck",
        "TimeoutError: the handler took longer than 0.5 s: its process was killed",
    )


def test_timeout_of_the_message_overrides_the_timeout_of_the_pool(queue: Queue, drain: Drain) -> None:
    queue.send("computes", id="stuck", timeout=0.5)
    assert drain(pooled.stuck_at_first, timeout=3600) == (1, 1, 1)
    (dead,) = queue.dead.list()
    assert dead.error == "TimeoutError: the handler took longer than 0.5 s: its process was killed"


@pytest.mark.full
def test_handler_over_its_time_limit_is_retried_while_the_others_keep_running(queue: Queue, drain: Drain) -> None:
    queue.send("sleeps", id="stuck", max_retries=1)
    others = [f"beside-{n}" for n in range(15)]  # together they take longer than one of them may
    queue.send_many([Outgoing("beside", id=name) for name in others])
    with capture_logs() as lines:
        assert drain(pooled.stuck_at_first, timeout=12) == (17, 1, 1)
    (line,) = [line for line in lines if line["event"] == "delivery failed"]
    assert (line["id"], line["next"]) == ("stuck", "retry")
    assert line["error"] == "TimeoutError: the handler took longer than 12 s: its process was killed"
    firsts, seconds = dict(pooled.notes("attempt-1")), dict(pooled.notes("attempt-2"))
    assert (set(firsts), set(seconds)) == ({"stuck", *others}, {"stuck"})
    assert firsts["stuck"] != seconds["stuck"]
    assert (queue.stats().acked, queue.stats().nacked) == (16, 1)


DEATHS = {
    "killed": "ProcessDied: its process was killed by SIGKILL",
    "segfault": "ProcessDied: its process was killed by SIGSEGV",
    "exit": "ProcessDied: its process ended with exit code 3",
    "fork": "ProcessDied: its process ended with exit code 4",
    "leave": "SystemExit: 3",
    "memory": "MemoryError: no more",
    "unsendable": "Unsendable: unsendable",
}


@pytest.mark.parametrize(
    "payloads",
    [["killed", "unsendable"], pytest.param([*DEATHS], marks=pytest.mark.full)],
    ids=["some", "all"],
)
def test_process_that_dies_fails_only_its_own_delivery(queue: Queue, drain: Drain, payloads: list[str]) -> None:
    for number, payload in enumerate(payloads):
        queue.send(payload, id=payload, max_retries=1)
        queue.send("fine", id=f"fine-{number}")
    with capture_logs() as lines:
        assert drain(pooled.die, concurrency=1) == (3 * len(payloads), 2 * len(payloads), 0)
    assert {dead.id: (dead.reason, dead.error, dead.attempts) for dead in queue.dead.list()} == {
        payload: ("retries-exhausted", DEATHS[payload], 2) for payload in payloads
    }
    assert sorted(name for name, _ in pooled.notes("fine")) == [f"fine-{n}" for n in range(len(payloads))]
    traces = [line["exc_info"] for line in lines if line["event"] == "delivery failed" and line["id"] == "unsendable"]
    assert ["raise Unsendable(message.payload)" in str(trace) for trace in traces] == [True, True]


@pytest.mark.parametrize("how", ["return", "exit", "raise", "ack"])
def test_process_forked_by_a_handler_does_not_affect_the_next_message(queue: Queue, drain: Drain, how: str) -> None:
    queue.send(how, id="first")
    queue.send("x", id="next")
    assert drain(pooled.fork_first, concurrency=1) == (2, 1, 0)
    assert [(letter.id, letter.error) for letter in queue.dead.list()] == [("next", "ValueError: of its own, True")]


ENDS: dict[str, tuple[str | None, str | None]] = {
    "ack": (None, None),
    "ack-and-fail": (None, None),
    "ack-then": (None, None),
    "return-then": (None, None),
    "extend": (None, None),
    "nack": ("retry", "later"),
    "raise-later": ("retry", "RetryAfter: .*"),
    "reject": ("dead", "of no use"),
    "raise-reject": ("dead", "Reject: no good"),
    "return-false": ("dead", "the handler returned False"),
    "return-rubbish": ("dead", "what the handler returned cannot be sent out of its process: .*lock.*"),
    "ask-rubbish": ("dead", "InvalidInput: .* cannot be sent out of its process: .*lock.*"),
    "ask-wrongly": ("dead", "InvalidTime: .*-1.*"),
}
"""Where a message is after its handler did what its payload says (None if it was acked), and its error."""


def test_backoff_gets_the_exception_of_a_handler_in_a_process(redis_server: RedisServer) -> None:
    seen: list[BaseException | None] = []

    def wait(_: int, error: BaseException | None) -> float:
        seen.append(error)
        return 0

    with Queue("jobs", url=redis_server.url, backoff=wait, max_retries=1) as queue:
        queue.send_many([Outgoing("memory"), Outgoing("unsendable")])
        Consumer(queue, pooled.die, pool="process", concurrency=1).drain()
    assert [type(error).__name__ for error in seen] == ["MemoryError", "RemoteTraceback"]
    assert "raise MemoryError" in str(seen[0] and seen[0].__cause__)
    assert "raise Unsendable" in str(seen[1])


def test_result_of_a_handler_in_a_process_settles_its_message(queue: Queue, drain: Drain) -> None:
    for payload, (state, _) in ENDS.items():
        queue.send(payload, id=payload, max_retries=1 if state == "retry" else 0)
    drain(pooled.settle)
    for payload, (state, error) in ENDS.items():
        info = queue.get(payload)
        assert (info and info.state) == state, payload
        if info is not None and error is not None:
            reason = info.reason if payload == "reject" else info.error
            assert re.fullmatch(error, reason or ""), (payload, reason)
    stats = queue.stats()
    assert (stats.acked, stats.nacked, stats.retry, stats.dead) == (7, 2, 2, 6)
    assert stats.missing == stats.unack == 0
    assert pooled.notes("acked-twice") == []
    assert sorted(name for name, _ in pooled.notes("failed")) == ["nack", "reject"]
    assert sorted(name for name, _ in pooled.notes("next")) == ["next to ack-then", "next to return-then"]


@pytest.mark.full
def test_message_released_in_a_process_comes_again(queue: Queue) -> None:
    queue.send("release", id="x")
    consumer = Consumer(queue, pooled.settle, pool="process", concurrency=1)
    consumer.run(max_messages=2)
    assert (queue.stats().released, queue.stats().ready) == (2, 1)


@pytest.mark.full
def test_handler_sends_over_a_connection_of_its_own_process(
    queue: Queue, drain: Drain, redis_server: RedisServer
) -> None:
    queue.send(redis_server.url)
    assert drain(pooled.send_on) == (1, 0, 0)
    with Queue("onward", url=redis_server.url) as onward:
        (message,) = onward.receive()
        assert message.payload != os.getpid()


@pytest.mark.full
def test_payload_is_checked_in_the_process(queue: Queue, drain: Drain) -> None:
    queue.send({"number": 7})
    queue.send({"number": "seven"}, id="wrong")
    assert drain(pooled.take_order) == (2, 1, 0)
    assert len(pooled.notes("order-7")) == 1
    assert [(dead.id, dead.reason) for dead in queue.dead.list()] == [("wrong", "payload-mismatch")]


@pytest.mark.full
def test_queue_with_a_client_of_the_user_is_served(redis_client: redis.Redis) -> None:
    with Queue("jobs", redis=redis_client) as queue:
        queue.send("ack")
        assert Consumer(queue, pooled.settle, pool="process", concurrency=1).drain() == 1
        assert queue.stats().acked == 1


@pytest.mark.full
def test_handler_in_a_process_gets_the_key_of_its_message(redis_client: redis.Redis) -> None:
    def choose(message: Message) -> str | None:
        key: str | None = message.payload
        return key

    with Queue("keyed", redis=redis_client, concurrency_key=choose, concurrency_per_key=1) as queue:
        queue.send_many([Outgoing("big", id="limited"), Outgoing(None, id="unlimited")])
        assert Consumer(queue, pooled.tell_key, pool="process", concurrency=1).drain() == 2
    assert [name for name, _ in pooled.notes("key-big")] == ["limited"]
    assert [name for name, _ in pooled.notes("key-None")] == ["unlimited"]


def test_middleware_and_schedule_functions_run_in_the_process(redis_client: redis.Redis) -> None:
    with served_by(pooled.routed, lambda: redis_client):
        pooled.routed.send("x", id="plain")
        pooled.routed.schedules.add("yearly", "0 0 1 1 *")
        occurrence = pooled.routed.schedules.run_now("yearly")
        assert Consumer(pooled.routed, pool="process", concurrency=1).drain() >= 2
    assert occurrence is not None
    assert [name for name, _ in pooled.notes("handler")] == ["plain"]
    assert len(pooled.notes("yearly")) == 1
    assert len(pooled.notes("middleware")) == len(pooled.notes("after")) == 2
    assert os.getpid() not in [pid for _, pid in pooled.notes("middleware")]


def test_tasks_run_in_the_process_whatever_they_return(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with served_by(pooled.tasks, lambda: redis_client):
        pooled.add.options(id="a").send(1)
        pooled.add.options(id="b").send(1, by=2)
        pooled.start_chain.send(9)
        pooled.fail.options(id="final").send("final")
        pooled.fail.options(id="again").send("again")
        pooled.tasks.send({"number": "x"}, task="add", id="wrong")
        pooled.tasks.send({}, task="gone", id="gone")
        Consumer(pooled.tasks, pool="process", concurrency=1).drain()
        dead = {each.id: each.reason for each in pooled.tasks.dead.list()}
        waiting = {each.id: (each.error or "").partition(":")[0] for each in pooled.tasks.peek("retry")}
        acked = pooled.tasks.stats().acked
    assert [pooled.notes(f"add-{total}")[0][0] for total in (2, 3)] == ["a", "b"]
    assert (len(pooled.notes("add-10")), acked) == (1, 4)
    assert dead == {"final": "not-retried", "wrong": "payload-mismatch"}
    assert waiting == {"again": "BlockingIOError", "gone": "UnknownTask"}
    assert "raise {" in caplog.text  # the traceback of the process


@pytest.mark.full
def test_thousand_messages_leave_no_process_and_no_open_file(queue: Queue, drain: Drain) -> None:
    queue.send("x")
    drain(pooled.fine)  # opens what stays open
    queue.close()
    files, children, threads = _open_files(), _children(), set(threading.enumerate())
    queue.send_many([Outgoing(n) for n in range(1000)])
    assert drain(pooled.fine) == (1000, 0, 0)
    assert len(pooled.notes("fine")) == 1001
    queue.close()
    assert _open_files() - files == set()  # other tests' processes may end meanwhile
    assert _children() - children == set()
    assert set(threading.enumerate()) - threads == set()


def _open_files() -> set[tuple[str, str]]:
    """Open descriptors, and what each one refers to."""
    found = set()
    for path in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of this listing, closed by now
            found.add((path.name, str(path.readlink())))
    return found


def _children() -> set[str]:
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that has ended meanwhile
            stats.append(path.read_text())
    fields = [(stat.partition(" ")[0], stat.rpartition(") ")[2].split()) for stat in stats]
    return {pid for pid, rest in fields if int(rest[1]) == os.getpid()}


@pytest.mark.full
def test_messages_wait_in_the_queue_while_no_process_can_start(queue: Queue, folder: Path) -> None:
    queue.send("fine", id="first")
    consumer = Consumer(queue, pooled.die, pool="process", concurrency=1, initializer=pooled.begin_if_allowed)
    with capture_logs() as lines:
        consumer.start()
        try:
            assert eventually(lambda: queue.stats().acked == 1)
            (folder / "refuse").touch()
            queue.send_many(
                [Outgoing("exit", id="a"), *(Outgoing("fine", id=f"b{n}") for n in range(3))]
            )  # in one claim
            assert eventually(lambda: any(line["event"] == "pool process not started, retrying" for line in lines))
            assert eventually(lambda: (queue.stats().unack, queue.stats().ready) == (0, 3))
            (folder / "refuse").unlink()
            assert eventually(lambda: queue.stats().acked == 4)
        finally:
            consumer.stop()
    assert (
        next(line["error"] for line in lines if line["event"] == "pool process not started, retrying")
        == "RuntimeError: refused"
    )


def test_module_that_a_process_cannot_import_ends_the_consumer(queue: Queue, drain: Drain) -> None:
    queue.send("x")
    with pytest.raises(InvalidInput, match="cannot be run in a process: RuntimeError: this module cannot be imported"):
        drain(broken_in_child.handle)
    assert (queue.stats().inside, queue.stats().delivered) == (1, 0)


def test_any_other_failure_to_start_a_process_ends_the_consumer(
    queue: Queue, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no processes today")

    monkeypatch.setattr(pool, "WorkerProcess", refuse)
    queue.send("x")
    with pytest.raises(InvalidInput, match="cannot be run in a process: RuntimeError: no processes today"):
        drain(pooled.fine)
    assert (queue.stats().inside, queue.stats().delivered) == (1, 0)


@pytest.mark.full
def test_running_handler_is_killed_and_its_message_handed_back_after_the_shutdown_timeout(queue: Queue) -> None:
    queue.send("x", id="x", max_retries=0)
    queue.send_many([Outgoing("waits", delay=0.001) for _ in range(3)])
    consumer = Consumer(queue, pooled.slow, pool="process", concurrency=1)
    consumer.start()
    assert eventually(lambda: len(pooled.notes("started")) == 1)
    consumer.stop(timeout=0)
    info = queue.get("x")
    assert info is not None
    assert (info.state, info.attempts) == ("ready", 1)
    assert queue.stats().unack == 0
    assert pooled.notes("ended") == []


def test_running_handler_is_finished_at_shutdown(queue: Queue, folder: Path) -> None:
    queue.send("x", id="x")
    consumer = Consumer(queue, pooled.slow, pool="process", concurrency=1)
    consumer.start()
    assert eventually(lambda: len(pooled.notes("started")) == 1)
    (folder / "go").touch()
    consumer.stop()
    assert len(pooled.notes("ended")) == 1
    assert queue.stats().acked == 1


def _local() -> Callable[[Message], None]:
    def handle(message: Message) -> None:
        raise AssertionError(message)

    return handle


@pytest.mark.parametrize("handler", [lambda _: None, _local(), threading.Lock().acquire])
def test_handler_that_cannot_be_sent_to_a_process_is_refused(queue: Queue, drain: Drain, handler: Any) -> None:
    queue.send("x")
    with pytest.raises(InvalidInput, match=r"handler .* cannot be sent to a process .*: give a top-level function"):
        drain(handler)
    stats = queue.stats()
    assert (stats.pending, stats.delivered) == (1, 0)


def test_async_handler_is_refused(redis_server: RedisServer) -> None:
    queue = aio.Queue("jobs", url=redis_server.url)
    with pytest.raises(InvalidInput, match="is an async function, which runs on the event loop: give a plain one"):
        aio.Consumer(queue, pooled.awaited, pool="process")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"pool": "fork"}, "unknown pool 'fork'"),
        ({"pool": "process", "initializer": lambda: None}, "initializer .* cannot be sent to a process"),
        ({"pool": "process", "initializer": 5}, "initializer 5 is not callable"),
        ({"initializer": pooled.begin}, 'initializer .* runs in pool processes only: also give pool="process"'),
        ({"pool": "process", "concurrency": 0}, "concurrency"),
    ],
)
def test_invalid_pool_options_are_refused(queue: Queue, options: dict[str, Any], wrong: str) -> None:
    for made in (lambda: Consumer(queue, pooled.fine, **options), lambda: _aio_consumer(queue, options)):
        with pytest.raises(InvalidInput, match=wrong):
            made()


def _aio_consumer(queue: Queue, options: dict[str, Any]) -> aio.Consumer:
    return aio.Consumer(aio.Queue(queue.name, url="redis://127.0.0.1:1/0"), pooled.fine, **options)


def test_middleware_of_a_queue_that_is_not_a_module_variable_is_refused(queue: Queue) -> None:
    queue.middleware.before_delivery(print)
    with pytest.raises(InvalidInput, match="make the queue a variable of a module"):
        Consumer(queue, pooled.fine, pool="process")


@pytest.mark.full
def test_middleware_missing_in_a_process_ends_the_consumer(redis_client: redis.Redis) -> None:
    with served_by(pooled.routed, lambda: redis_client):
        pooled.routed.middleware.before_delivery(print)
        pooled.routed.send("x")
        with pytest.raises(InvalidInput, match=r"pooled:routed has other middleware, .* register all of them in"):
            Consumer(pooled.routed, pool="process", concurrency=1).drain()
        assert pooled.routed.stats().delivered == 0
