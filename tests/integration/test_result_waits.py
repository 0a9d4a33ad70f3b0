"""Waiting for results with a real consumer: many waits on few connections, lost replies, kills, restarts."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from delayq import Consumer, NoResult, Queue, ResultTimeout, TaskFailed, aio, current_message
from delayq.errors import ServerUnreachable
from delayq.protocol.queue_commands import QueueCommands
from tests.harness.servers import RedisServer, server_binaries

NEWEST = "8.2"

WAIT = 20  # seconds, far more than any of these takes


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url, lease=2) as queue:
        yield queue


@pytest.fixture
def consuming(queue: Queue) -> Iterator[Any]:
    """``consuming()``: start a consumer."""
    running: list[tuple[Consumer, threading.Thread]] = []

    def start(**options: Any) -> None:
        consumer = Consumer(queue, **options)
        running.append((consumer, threading.Thread(target=consumer.run)))
        running[-1][1].start()

    yield start
    for consumer, thread in running:
        consumer.stop()
        thread.join()


def double(n: int) -> int:
    return 2 * n


def blocked(server: RedisServer) -> int:
    with server.client() as client:
        return sum("cmd=xread" in str(each.get("cmd")) or each.get("cmd") == "xread" for each in client.client_list())


def test_waiting_call_returns_when_the_task_ends(queue: Queue, consuming: Any):
    task = queue.task(results=60)(double)
    consuming()
    sent = task.options(delay=0.5).send(4)
    assert sent.result(WAIT) == 8


def test_many_waits_share_one_connection(queue: Queue, consuming: Any, redis_server: RedisServer):
    task = queue.task(results=60)(double)
    sents = [task.send(n) for n in range(50)]
    with ThreadPoolExecutor(50) as threads:
        waits = [threads.submit(sent.result, WAIT) for sent in sents]
        while blocked(redis_server) == 0:
            time.sleep(0.01)
        seen = blocked(redis_server)
        consuming()
        assert [each.result(WAIT) for each in waits] == [2 * n for n in range(50)]
    assert seen == 1


def test_wait_for_a_message_that_is_purged_ends(queue: Queue):
    task = queue.task(results=60)(double)
    sent = task.send(1)
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(sent.result, WAIT)
        time.sleep(0.3)
        queue.purge()
        with pytest.raises(NoResult):
            wait.result(WAIT)


@pytest.mark.parametrize("retried", [False, True])
def test_wait_for_a_task_that_is_stopped_ends(queue: Queue, consuming: Any, retried: bool):
    running = threading.Event()

    @queue.task(results=60, backoff=lambda *_: 0.05)
    def stoppable() -> None:
        message: Any = current_message()
        if retried and message.attempt == 1:
            raise ValueError("so that a record of this attempt is kept")
        running.set()
        while not message.cancelled:
            time.sleep(0.01)
        raise InterruptedError("given up")

    consuming()
    sent = stoppable.send()
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(sent.result, WAIT)
        assert running.wait(WAIT)
        assert queue.cancel(sent.id, running=True) == "stopping"
        with pytest.raises(NoResult, match="cancelled"):
            wait.result(WAIT)


def test_wait_ends_with_a_timeout(queue: Queue):
    sent = queue.task(results=60)(double).options(delay=60).send(1)
    began = time.monotonic()
    with pytest.raises(ResultTimeout):
        sent.result(0.3)
    assert time.monotonic() - began >= 0.3


def test_close_ends_the_waits(queue: Queue):
    sent = queue.task(results=60)(double).options(delay=60).send(1)
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(sent.result, WAIT)
        time.sleep(0.3)
        queue.close()
        with pytest.raises((ServerUnreachable, ResultTimeout)):
            wait.result(WAIT)


def test_lost_scripts_and_streams_delay_a_wait_at_most(queue: Queue, consuming: Any, redis_server: RedisServer):
    task = queue.task(results=60)(double)
    sent = task.options(delay=1).send(5)
    with ThreadPoolExecutor(1) as threads, redis_server.client() as client:
        wait = threads.submit(sent.result, WAIT)
        time.sleep(0.3)
        client.script_flush()
        consuming()
        while not wait.done():
            client.delete(queue._context.shards[0].keys.finished)
            time.sleep(0.01)
        assert wait.result(WAIT) == 10


def test_wait_survives_a_restart_of_the_server():
    server = RedisServer(server_binaries()[NEWEST], appendonly=True)
    try:
        with Queue("jobs", url=server.url) as queue:
            task = queue.task(results=60)(double)
            sent = task.options(delay=2).send(6)
            with ThreadPoolExecutor(1) as threads:
                wait = threads.submit(sent.result, WAIT)
                time.sleep(0.5)
                server.kill()
                time.sleep(0.5)
                server.start()
                Consumer(queue).run(max_messages=1)
                assert wait.result(WAIT) == 12
    finally:
        server.close()


def test_many_tasks_wait_on_an_event_loop(redis_server: RedisServer):
    async def run() -> list[int]:
        async with aio.Queue("jobs", url=redis_server.url) as queue:

            @queue.task(results=60)
            async def later(n: int) -> int:
                await asyncio.sleep(0.01)
                return 2 * n

            sents = [await later.send(n) for n in range(30)]
            waits = [asyncio.create_task(sent.result(WAIT)) for sent in sents]
            waits[0].cancel()  # the one that watches for the others
            await asyncio.sleep(0.2)
            async with asyncio.timeout(WAIT):
                await aio.Consumer(queue).drain()
                return await asyncio.gather(*waits[1:])

    assert asyncio.run(run()) == [2 * n for n in range(1, 30)]


MODULE = """
from delayq import Queue, current_message

queue = Queue("jobs", url={url!r})


@queue.task(results=60)
def double(n: int) -> int:
    return 2 * n


@queue.task(results=60, max_retries=0)
def fail(n: int) -> object:
    raise LookupError(f"no {{n}}") if n else None


@queue.task(results=60)
def odd() -> object:
    return object()


@queue.task(results=60)
def report(n: int) -> list[object]:
    message = current_message()
    for each in range(n):
        message.progress(each, n, "pages")
    with Queue("jobs", url={url!r}) as other:
        return list(other.get(message.id).progress)
"""


def test_processes_keep_results_and_errors(redis_server: RedisServer, tmp_path: Path, monkeypatch: Any):
    (tmp_path / "pooled_results.py").write_text(MODULE.format(url=redis_server.url))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("pooled_results")
    with module.queue:
        sent, failed, odd = module.double.send(4), module.fail.send(7), module.odd.send()
        reports = module.report.send(3)
        Consumer(module.queue, pool="process", concurrency=1).run(max_messages=4)
        assert reports.result(0) == [0, 3, "pages"]
        assert sent.result(0) == 8
        with pytest.raises(TaskFailed) as raised:
            failed.result(0)
        assert (raised.value.type, raised.value.text) == ("LookupError", "no 7")
        assert "pooled_results.py" in raised.value.traceback
        with pytest.raises(TaskFailed) as raised:
            odd.result(0)
        assert raised.value.reason == "result-not-serializable"


SETTLING = """
from delayq import current_message
from {face} import Queue

queue = Queue("jobs", url={url!r})


@queue.task
def settle(how: str) -> str:
    getattr(current_message(), how)()
    return "too late"
"""


@pytest.mark.parametrize("face", ["delayq", "delayq.aio"])
def test_task_in_a_process_that_settles_its_own_message_is_never_waited_for_without_end(
    face: str, queue: Queue, redis_server: RedisServer, tmp_path: Path, monkeypatch: Any
):
    name = f"settling_{len(face)}"
    (tmp_path / f"{name}.py").write_text(SETTLING.format(face=face, url=redis_server.url))
    monkeypatch.syspath_prepend(tmp_path)
    consuming = importlib.import_module(name).queue
    for how in ("ack", "reject"):
        queue.send({"how": how}, id=how, task="settle", results=60)
    if face == "delayq":
        Consumer(consuming, pool="process", concurrency=1).drain()
        consuming.close()
    else:

        async def consume() -> None:
            await aio.Consumer(consuming, pool="process", concurrency=1).drain()
            await consuming.close()

        asyncio.run(consume())
    ends = [queue.result(how) for how in ("ack", "reject")]
    assert [each and (each.status, each.value) for each in ends] == [("done", None), ("dead", None)]


def test_no_call_copies_many_large_messages(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    @queue.task(results=60)
    def keep(text: str) -> None: ...

    for _ in range(5):
        keep.send("x" * 400_000)
    messages: list[Any] = []
    while len(messages) < 5:
        messages += queue.receive(10)
    sizes: list[int] = []
    ack_result = QueueCommands.ack_result

    def ack(scripts: QueueCommands, deliveries: Any) -> Any:
        sizes.append(len(deliveries))
        return ack_result(scripts, deliveries)

    monkeypatch.setattr(QueueCommands, "ack_result", ack)
    assert queue.ack(messages) == [True] * 5
    assert (sum(sizes), max(sizes)) == (5, 2)
