"""A consumer that an error ends leaves as one that is stopped: it settles what its handlers have done, then raises."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq import Consumer, Queue, Topic, TopicConsumer, aio
from delayq.errors import FormatTooNew, ShardsMismatch
from delayq.operations import claim as claiming
from delayq.operations.topics import group_read
from delayq.runtime import claimer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

SENT, AT_ONCE = 6, 2
BEGAN = "DELAYQ_TEST_BEGAN"


class OfNobody(BaseException):
    """An error outside Exception."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "RuntimeError": lambda: RuntimeError("unforeseen"),
    "MemoryError": MemoryError,
    "SystemExit": lambda: SystemExit(1),
    "OfNobody": OfNobody,
    "FormatTooNew": lambda: FormatTooNew("newer"),
}


QUICK = {"RuntimeError", "SystemExit"}
each_error = pytest.mark.parametrize(
    "error", [pytest.param(each, marks=() if each in QUICK else pytest.mark.full) for each in ERRORS]
)


class Gate:
    """Handlers that wait until they may end, while something goes wrong."""

    def __init__(self) -> None:
        self.began = 0
        self.opens = threading.Event()
        self.is_broken = False

    def handle(self, _: Any) -> None:
        self.began += 1
        assert self.opens.wait(120)

    async def handle_async(self, _: Any) -> None:
        self.began += 1
        while not self.opens.is_set():  # noqa: ASYNC110  # it is set by another thread
            await asyncio.sleep(0.01)

    def handle_batch(self, messages: list[Any]) -> None:
        self.handle(messages)


def doze(_: Any) -> None:
    """A handler for processes."""
    Path(os.environ[BEGAN]).touch()
    time.sleep(0.5)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url) as queue:
        for number in range(SENT):
            queue.send(number)
        yield queue


def breaking(gate: Gate, function: Callable[..., Any], error: Callable[[], BaseException]) -> Callable[..., Any]:
    """Return a function that raises once the gate is broken."""

    def call(*args: Any, **options: Any) -> Any:
        if gate.is_broken:
            raise error()
        return function(*args, **options)

    return call


def ended(run: Callable[[], object], gate: Gate, fault: Callable[[], object], says: Callable[[], bool]) -> Any:
    """Run a consumer; cause a fault while its handlers run, and let them end once it has noticed; return its error."""
    errors: list[BaseException | None] = []

    def work() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            errors.append(error)
        else:
            errors.append(None)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert eventually(lambda: gate.began >= AT_ONCE)
        fault()
        assert eventually(says)
        assert thread.is_alive()
    finally:
        gate.opens.set()
        thread.join(120)
    return errors[0]


@pytest.fixture
def says(caplog: pytest.LogCaptureFixture) -> Callable[[], bool]:
    return lambda: any("consumer stops after an error" in each.getMessage() for each in caplog.records)


def consumer_of(way: str, server: RedisServer, gate: Gate) -> tuple[Callable[[], object], list[Any]]:
    """Return a function that runs a consumer in this way, and its queues, once it has begun."""
    queues: list[Any] = []

    def run() -> None:
        with Queue("jobs", url=server.url, lease=30) as queue, Queue("mail", url=server.url) as other:
            queues.append(queue)
            if way == "batch":
                queue.batch_handler(max_messages=1, max_wait=0)(gate.handle_batch)
                Consumer(queue, concurrency=AT_ONCE).run()
            else:
                chosen: Any = [queue, other] if way == "several" else queue
                Consumer(chosen, gate.handle, concurrency=AT_ONCE).run()

    async def run_async() -> None:
        async with aio.Queue("jobs", url=server.url) as queue, aio.Queue("mail", url=server.url) as other:
            queues.append(queue)
            chosen: Any = [queue, other] if way == "async-several" else queue
            await aio.Consumer(chosen, gate.handle_async, concurrency=AT_ONCE).run()

    return (lambda: asyncio.run(run_async())) if way.startswith("async") else run, queues


WAYS = ["threads", "batch", "several", "async", "async-several"]
SOME_WAYS = [way if way in ("batch", "async") else pytest.param(way, marks=pytest.mark.full) for way in WAYS]


def check(queue: Queue, gate: Gate) -> None:
    """Check that what began is acked, and that the rest is back without a lost attempt."""
    stats = queue.stats()
    assert (stats.acked, stats.unack, stats.retry, stats.dead) == (gate.began, 0, 0, 0)
    assert stats.ready + stats.pending == SENT - gate.began
    assert [info.attempts for info in queue.peek("ready", 10)] == [0] * (SENT - gate.began)


@each_error
@pytest.mark.parametrize("way", SOME_WAYS)
def test_work_is_settled_before_an_error_ends_the_consumer(
    queue: Queue,
    redis_server: RedisServer,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    says: Callable[[], bool],
    way: str,
    error: str,
):
    monkeypatch.setattr(claimer, "claim", breaking(gate, claiming.claim, ERRORS[error]))
    run, _ = consumer_of(way, redis_server, gate)
    raised = ended(run, gate, lambda: setattr(gate, "is_broken", True), says)
    assert isinstance(raised, type(ERRORS[error]()))
    check(queue, gate)


@pytest.mark.parametrize(("field", "value", "error"), [("format", 99, FormatTooNew), ("shards", 3, ShardsMismatch)])
@pytest.mark.parametrize("way", SOME_WAYS)
def test_work_is_settled_before_a_mismatch_ends_the_consumer(
    queue: Queue,
    redis_server: RedisServer,
    gate: Gate,
    says: Callable[[], bool],
    way: str,
    field: str,
    value: int,
    error: type[Exception],
):
    run, queues = consumer_of(way, redis_server, gate)
    before = redis_server.client().hget("delayq:{jobs}:meta", field)

    def fault() -> None:
        redis_server.client().hset("delayq:{jobs}:meta", field, value)
        queues[0]._context.look_again()

    assert isinstance(ended(run, gate, fault, says), error)
    redis_server.client().hset("delayq:{jobs}:meta", field, before)
    check(queue, gate)


@each_error
def test_work_of_processes_is_settled_before_an_error_ends_the_consumer(
    queue: Queue, redis_server: RedisServer, gate: Gate, monkeypatch: pytest.MonkeyPatch, error: str, tmp_path: Path
):
    monkeypatch.setenv(BEGAN, str(tmp_path / "began"))
    monkeypatch.setattr(claimer, "claim", breaking(gate, claiming.claim, ERRORS[error]))
    raised: list[BaseException] = []

    def run() -> None:
        with Queue("jobs", url=redis_server.url) as mine:
            try:
                Consumer(mine, doze, concurrency=1, pool="process").run()
            except BaseException as caught:  # noqa: BLE001  # the test looks at it
                raised.append(caught)

    thread = threading.Thread(target=run)
    thread.start()
    assert eventually((tmp_path / "began").exists)
    gate.is_broken = True
    thread.join(120)
    stats = queue.stats()
    assert isinstance(raised[0], type(ERRORS[error]()))
    assert stats.acked >= 1
    assert (stats.unack, stats.retry, stats.dead, stats.acked + stats.ready) == (0, 0, 0, SENT)


@each_error
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_records_are_settled_before_an_error_ends_the_consumer(
    redis_server: RedisServer,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    says: Callable[[], bool],
    is_async: bool,
    error: str,
):
    monkeypatch.setattr(group_read, "poll", breaking(gate, group_read.poll, ERRORS[error]))
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", "0")
        for number in range(SENT):
            topic.publish(number)

        def run() -> None:
            with Topic("orders", url=redis_server.url) as mine:
                TopicConsumer(mine.group("billing"), gate.handle, concurrency=2 * SENT).run()

        async def run_async() -> None:
            async with aio.Topic("orders", url=redis_server.url) as mine:
                await aio.TopicConsumer(await mine.group("billing"), gate.handle_async, concurrency=2 * SENT).run()

        chosen: Callable[[], object] = (lambda: asyncio.run(run_async())) if is_async else run
        raised = ended(chosen, gate, lambda: setattr(gate, "is_broken", True), says)
        assert isinstance(raised, type(ERRORS[error]()))
        left = group.unacked()
        assert all(each.deliveries == 0 for each in left)
        assert gate.began + len(left) + (group.lag() or 0) == SENT


def test_start_and_stop_raise_what_ended_the_consumer(
    queue: Queue, redis_server: RedisServer, gate: Gate, monkeypatch: pytest.MonkeyPatch, says: Callable[[], bool]
):
    monkeypatch.setattr(claimer, "claim", breaking(gate, claiming.claim, ERRORS["SystemExit"]))
    with Queue("jobs", url=redis_server.url) as mine:
        consumer = Consumer(mine, gate.handle, concurrency=AT_ONCE)
        consumer.start()
        assert eventually(lambda: gate.began == AT_ONCE)
        gate.is_broken = True
        assert eventually(says)
        gate.opens.set()
        with pytest.raises(SystemExit):
            consumer.stop()
    check(queue, gate)


@pytest.mark.parametrize("field", ["format", "shards"])
def test_records_are_settled_before_a_mismatch_ends_the_consumer(
    redis_server: RedisServer, gate: Gate, says: Callable[[], bool], field: str
):
    with Topic("orders", url=redis_server.url) as topic, Topic("orders", url=redis_server.url) as mine:
        group = topic.group("billing", "0")
        for number in range(SENT):
            topic.publish(number)
        consumer = TopicConsumer(mine.group("billing"), gate.handle, concurrency=2 * SENT)

        def fault() -> None:
            redis_server.client().hset(mine._context.shards[0].keys.meta, field, 99)
            mine._context.open_until = 0.0

        assert isinstance(ended(consumer.run, gate, fault, says), FormatTooNew | ShardsMismatch)
        assert (gate.began, group.unacked(), group.lag()) == (SENT, [], 0)
