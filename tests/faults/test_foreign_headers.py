"""What another client writes into delayq's own headers hurts only its message, and moves no schedule."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from delayq.cli.consume.program import ProgramHandler
from hypothesis import given
from hypothesis import strategies as st

from delayq import Consumer, Message, Queue, aio, backoff
from delayq.model.delivery import Delivery
from delayq.model.task_name import task_of
from tests.harness import pooled
from tests.harness.foreign_headers import CORPUS, Foreign, messages, write
from tests.harness.hostile import examples
from tests.harness.servers import RedisServer

NUMBERS = itertools.count()
NEIGHBOURS = 3


def handle(message: Delivery[Any], queue: Queue, handled: list[str]) -> None:
    """Do with a message what handlers do; its headers can be passed on."""
    handled.append(message.id)
    assert message.slot is None or message.schedule is not None
    assert not [name for name in message.headers if "delayq-" in name.lower()]
    if message.id.startswith("neighbour"):
        queue.send("passed on", id=f"of {message.id}", delay=3600, headers=message.headers)


def sync(queue: Queue, handled: list[str]) -> None:
    Consumer(queue, lambda message: handle(message, queue, handled), concurrency=2).drain()


def in_batches(queue: Queue, handled: list[str]) -> None:
    @queue.batch_handler
    def all_of(batch: list[Message]) -> None:
        for message in batch:
            handle(message, queue, handled)

    Consumer(queue).drain()


def awaited(queue: Queue, handled: list[str]) -> None:
    async def run() -> None:
        async with aio.Queue(queue.name) as same:

            @same.cron("0 0 1 1 *", name="alice")
            @same.handler
            async def one(message: aio.Message) -> None:
                handle(message, queue, handled)

            await aio.Consumer(same).drain()

    asyncio.run(run())


def received(queue: Queue, handled: list[str]) -> None:
    while found := queue.receive(10):
        for message in found:
            handle(message, queue, handled)
        queue.ack(found)


def awaited_in_batches(queue: Queue, handled: list[str]) -> None:
    async def run() -> None:
        async with aio.Queue(queue.name) as same:

            @same.batch_handler
            async def all_of(batch: list[aio.Message]) -> None:
                for message in batch:
                    handle(message, queue, handled)

            await aio.Consumer(same).drain()

    asyncio.run(run())


def awaited_received(queue: Queue, handled: list[str]) -> None:
    async def run() -> None:
        async with aio.Queue(queue.name) as same:
            while found := await same.receive(10):
                for message in found:
                    handle(message, queue, handled)
                await same.ack(found)

    asyncio.run(run())


def in_processes(queue: Queue, handled: list[str]) -> None:
    before = len(pooled.notes("described"))
    with Queue(queue.name) as same:
        Consumer(same, pooled.described, pool="process", concurrency=2).drain()
    handled += [message_id for message_id, _ in pooled.notes("described")[before:]]


def by_a_program(queue: Queue, handled: list[str]) -> None:
    ids = pooled.folder() / f"ids of {queue.name}"
    Consumer(
        queue, ProgramHandler(f"echo \"$DELAYQ_ID\" >> '{ids}'; ! env | grep -i header_delayq"), concurrency=2
    ).drain()
    handled += ids.read_text().splitlines()


TAKERS: dict[str, Callable[[Queue, list[str]], None]] = {
    "sync": sync,
    "batches": in_batches,
    "aio": awaited,
    "aio batches": awaited_in_batches,
    "receive": received,
    "aio receive": awaited_received,
    "process": in_processes,
    "exec": by_a_program,
}
SLOW = {"process", "exec"}  # too slow for random examples


def filled(queue: Queue, foreign: Sequence[Foreign]) -> dict[str, object]:
    """Store foreign messages between others, beside two schedules; return when these fire."""
    for name in ("bob", "alice"):
        queue.schedules.add(name, "0 0 1 1 *")
    queue.send("first", id="neighbour 0", headers={"tenant": "acme"})
    for each in foreign:
        write(queue, *each)
    for number in range(1, NEIGHBOURS):
        queue.send("later", id=f"neighbour {number}")
    return fires(queue)


def fires(queue: Queue) -> dict[str, object]:
    there = {info.id for info in queue.peek("pending", limit=1000)}
    return {each.name: (each.next_at, each.next_id in there) for each in queue.schedules.list()}


def check(queue: Queue, handled: Sequence[str], foreign: Sequence[Foreign], is_received: bool) -> None:
    """Check that neighbours were handled, and that each other message was, or is dead with the reason.

    Those of a task that no consumer knows wait, unless they were received.
    """
    assert sorted(each for each in handled if each.startswith("neighbour")) == [
        f"neighbour {number}" for number in range(NEIGHBOURS)
    ]
    stats, waiting = queue.stats(), queue.peek("retry", 1000)
    assert (stats.ready, stats.unack, stats.retry) == (0, 0, len(waiting))
    assert {(each.error or "").partition(":")[0] for each in waiting} <= {"UnknownTask"}
    tasks = {id for id, headers in dict(foreign).items() if task_of(headers)}
    assert {each.id for each in waiting} <= tasks
    if not is_received:
        assert not tasks & set(handled)
    dead = queue.dead.list(limit=1000)
    unreadable = {each.id for each in dead if each.reason == "unreadable-envelope"}
    assert unreadable == {id for id, headers in dict(foreign).items() if any(map(is_nested, headers.values()))}
    errors = {(each.reason, (each.error or "").partition(":")[0]) for each in dead if each.id not in unreadable}
    assert errors <= {("retries-exhausted", "HandlerMissing"), ("payload-mismatch", "PayloadMismatch")}


def is_nested(value: object) -> bool:
    """Whether a value cannot be one of a header, so that its envelope cannot be read."""
    return isinstance(value, list | dict)


@pytest.fixture(autouse=True)
def place(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_URL", redis_server.url)
    monkeypatch.setenv(pooled.WHERE, str(tmp_path))


def take_all(taker: str, foreign: Sequence[Foreign]) -> None:
    """Let a taker take foreign messages and their neighbours, and check what became of them."""
    handled: list[str] = []
    with Queue(f"jobs-{next(NUMBERS)}", backoff=backoff.fixed(3600)) as queue:
        queue.cron("0 0 1 1 *", name="alice")(lambda message: handle(message, queue, handled))
        queue.task(name="alice")(lambda user_id: handle(user_id, queue, handled))
        before = filled(queue, foreign)
        TAKERS[taker](queue, handled)
        check(queue, handled, foreign, "receive" in taker)
        assert fires(queue) == before


@examples
@given(st.sampled_from(sorted(TAKERS.keys() - SLOW)), st.lists(messages(), min_size=1, max_size=8))
def test_any_headers_of_another_client_hurt_only_their_message(taker: str, foreign: list[Foreign]) -> None:
    take_all(taker, foreign)


@pytest.mark.parametrize("taker", TAKERS)
def test_each_known_header_of_another_client_hurts_only_its_message(taker: str) -> None:
    take_all(taker, CORPUS)


@pytest.mark.parametrize("taker", TAKERS)
def test_fault_of_delayq_in_one_message_ends_only_that_message(taker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(message: Delivery[Any]) -> bool:
        if message.id == "bad":
            raise ZeroDivisionError("a fault")
        return False

    monkeypatch.setattr(Delivery, "is_expired", property(broken))
    handled: list[str] = []
    with Queue("jobs", backoff=backoff.fixed(3600)) as queue:
        filled(queue, [])
        queue.send("x", id="bad", expires_in=60)
        TAKERS[taker](queue, handled)
        assert sorted(handled) == [f"neighbour {number}" for number in range(NEIGHBOURS)]
        (dead,) = queue.dead.list()
        assert (dead.id, dead.reason, dead.error) == ("bad", "unreadable-envelope", "ZeroDivisionError: a fault")
        assert (queue.stats().ready, queue.stats().unack, queue.stats().retry) == (0, 0, 0)
