"""Redrives that run at the same time as others, beside consumers, and that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue, Reject
from delayq.doctor import examine
from delayq.types import Redriven
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

COUNT = 3000


def refuse(_: Message) -> None:
    raise Reject("again")


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.full)])
def queue(redis_client: redis.Redis, request: pytest.FixtureRequest) -> Queue:
    """A queue with dead letters."""
    queue = Queue("jobs", redis=redis_client, shards=request.param)
    queue.send_many([Outgoing(number, id=str(number)) for number in range(COUNT)])
    while messages := queue.receive(500):
        for message in messages:
            message.reject("first")
    return queue


def at_once(*calls: Callable[[], object]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_concurrent_redrives_bring_each_back_once_even_if_all_die_again(queue: Queue):
    """Three redrives of the same dead letters, while a consumer rejects what comes back."""
    up_to = queue.dead.redrive(dry_run=True).up_to
    calls: list[Redriven] = []
    consumer = Consumer(queue, refuse, concurrency=4)
    consumer.start()
    try:
        at_once(*[lambda: calls.append(queue.dead.redrive(older_than=up_to))] * 3)
        assert eventually(lambda: queue.stats().dead == COUNT)
    finally:
        consumer.stop()
    stats = queue.stats()
    assert (sum(each.moved for each in calls), stats.requeued, stats.missing) == (COUNT, COUNT, 0)
    assert {letter.attempts for letter in queue.dead.list(COUNT)} == {2}
    assert {letter.reason for letter in queue.dead.list(COUNT)} == {"again"}


def test_redrive_finds_its_dead_letters_while_others_come_and_go(queue: Queue):
    """Another client requeues the odd ones from the front, so those to redrive, every 7th here, keep moving up."""
    meant = [str(number) for number in range(0, COUNT, 14)]
    for id in meant:
        assert queue.dead.edit(id, "marked")
    while messages := queue.receive(500):
        for message in messages:
            message.reject("meant")
    odd = [str(number) for number in range(1, COUNT, 2)]
    calls: list[Redriven] = []
    at_once(lambda: queue.dead.requeue(odd), lambda: calls.append(queue.dead.redrive(reason="meant")))
    assert calls[0].moved == len(meant)
    assert {letter.reason for letter in queue.dead.list(COUNT)} == {"first"}
    assert examine(queue).errors == []


def test_killed_redrive_loses_nothing(queue: Queue, redis_server: RedisServer):
    command = [
        sys.executable,
        "-m",
        "delayq.cli",
        "dead",
        "requeue",
        "jobs",
        "--all",
        "--rate",
        "10/s",
    ]  # takes 5 min in all
    with subprocess.Popen([*command, "--url", redis_server.url], stderr=subprocess.DEVNULL) as process:
        assert eventually(lambda: queue.stats().requeued > 0)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=120)
    stats = queue.stats()
    assert stats.pending == stats.requeued < COUNT
    assert stats.pending + stats.dead == COUNT
    assert examine(queue).errors == []
    assert queue.dead.redrive().moved == stats.dead


def test_only_one_of_many_concurrent_edits_of_a_dead_letter_succeeds(queue: Queue):
    done: list[int] = []
    calls = [lambda n=number: done.append(n) if queue.dead.edit("5", n) else None for number in range(8)]
    at_once(*calls)
    info = queue.get("5")
    assert info is not None
    assert [info.payload] == done
    assert queue.stats().requeued == 1
