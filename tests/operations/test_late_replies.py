"""One of several shards is unavailable, or answers late: the others are served, and late replies are used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from delayq import Ack, Consumer, Message, Outgoing, Queue
from delayq.errors import DelayqError, ServerNotReady, ServerUnreachable
from delayq.model import outcome as oc
from delayq.operations import record_copies
from delayq.operations.claim import ClaimNames, claim
from delayq.operations.queue_context import QueueContext
from delayq.operations.settle import settle
from delayq.protocol.late_reply import Silent, Unanswered
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

SHARDS = 3
IDS = [str(number) for number in range(30)]


class Trouble:
    """What happens to the calls to one shard.

    Attributes:
        make: returns the error in place of a reply; None for none.
        late: the errors that are still to be answered, each with its reply.
    """

    def __init__(self, queue: Queue, shard: int) -> None:
        self.make: Callable[[], DelayqError] | None = None
        self.late: list[tuple[Unanswered, Any]] = []
        self.asked = 0
        self._run = queue._executor.run
        self._mark = "{jobs}" if shard == 0 else f"{{jobs#{shard}}}"

    def run(self, calls: Any, repeat: bool = True) -> Any:
        make = self.make
        if make is None:
            return self._run(calls, repeat)
        served = [call for call in calls if not self._hits(call)]
        others = iter(self._run(served, repeat) if served else ())
        return [self._trouble(call, make) if self._hits(call) else next(others) for call in calls]

    def answer(self) -> None:
        """Answer all late calls; the shard is well again."""
        self.make, late, self.late = None, self.late, []
        for error, reply in late:
            error.answer(reply)

    def _hits(self, call: Any) -> bool:
        return self._mark in call.key

    def _trouble(self, call: Any, make: Callable[[], DelayqError]) -> DelayqError:
        self.asked += 1
        error = make()
        if isinstance(error, Unanswered):
            self.late.append((error, self._run([call])[0]))
            self.make = lambda: Silent("node")  # until it answers, it is not asked again
        return error


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url, shards=SHARDS) as queue:
        queue._context.spans_nodes = lambda: True  # as if the shards were on nodes of a cluster
        queue.send_many([Outgoing(each, id=each) for each in IDS])
        yield queue


@pytest.fixture
def trouble(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Trouble:
    trouble = Trouble(queue, 1)
    monkeypatch.setattr(queue._executor, "run", trouble.run)
    return trouble


def claimed(queue: Queue) -> list[Message]:
    """Claim as a consumer until nothing comes; the first claims are small, as the size of messages is not known."""
    found: list[Message] = []
    names = ClaimNames()
    while messages := queue.execute(claim, partial(Message, queue), 100, 60_000, False, (), "consumer", names).messages:
        found += messages
    return found


def healthy(queue: Queue) -> set[str]:
    return {each for each in IDS if queue._context.shard(each) is not queue._context.shards[1]}


@pytest.mark.parametrize("error", [ServerNotReady, ServerUnreachable])
def test_claim_takes_the_messages_of_the_other_shards(queue: Queue, trouble: Trouble, error: type[DelayqError]) -> None:
    trouble.make = lambda: error("away")
    assert {each.id for each in claimed(queue)} == healthy(queue)
    trouble.make = None
    assert {each.id for each in claimed(queue)} == set(IDS) - healthy(queue)


def test_shard_is_not_asked_again_before_its_late_claim_is_taken(queue: Queue) -> None:
    context: QueueContext = queue._context
    run, late = queue._executor.run, Unanswered("node")
    replies: list[Any] = []

    def slow(calls: Any, repeat: bool = True) -> Any:
        results = run(calls, repeat)
        for place, call in enumerate(calls):
            if "{jobs#1}" in call.key and call.script is not None and call.script.name == "ready_to_unack":
                replies.append(results[place])
                results[place] = late
        return results

    queue._executor.run = slow  # type: ignore[method-assign]
    first = claimed(queue)
    queue._executor.run = run  # type: ignore[method-assign]
    assert ({each.id for each in first}, len(replies)) == (healthy(queue), 1)
    queue.execute(claim, partial(Message, queue), 100, 60_000)
    assert queue.stats().delivered == len(IDS) - len(set(IDS) - healthy(queue)) + len(replies[0].ids)
    assert context.outages.has(context.shards[1].keys.meta)
    late.answer(replies[0])
    last = claimed(queue)
    assert sorted(each.id for each in last) == sorted(set(IDS) - healthy(queue))
    assert {each.attempt for each in last} == {1}
    assert not context.claims.late
    assert queue.stats().delivered == len(IDS)


def test_late_settlement_is_neither_sent_twice_nor_refused(queue: Queue, trouble: Trouble) -> None:
    messages = claimed(queue)
    outcomes: list[Any] = [
        (message, oc.Failed(0, "no") if number % 3 == 0 else oc.DONE) for number, message in enumerate(messages)
    ]
    trouble.make = lambda: Unanswered("node")
    first = queue.execute(settle, outcomes)
    open_ones = [each for each, ours in zip(outcomes, first, strict=True) if ours is not True]
    assert {each[0].id for each in open_ones} == set(IDS) - healthy(queue)
    assert not any(ours is True for ours in queue.execute(settle, open_ones))
    trouble.answer()
    assert queue.execute(settle, open_ones) == [True] * len(open_ones)
    stats = queue.stats()
    assert stats.acked + stats.nacked == len(IDS)
    assert not queue._context.late_outcomes


def test_consumer_settles_what_it_owes_a_shard_when_that_is_back(
    queue: Queue, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile it neither pauses nor spins."""
    handled: list[str] = []

    def handle(message: Message) -> None:
        handled.append(message.id)
        if len(handled) == len(IDS):
            trouble.make = lambda: ServerNotReady("away")
            monkeypatch.setattr("delayq.runtime.shard_backlog.FIRST_PAUSE", 0.2)
        if message.id == "late":
            trouble.make = None

    consumer = Consumer(queue, handle, concurrency=1)
    queue.send("x", id="late", delay=1.5)
    assert consumer.drain() >= len(IDS)
    assert queue.stats().acked + queue.stats().pending + queue.stats().ready == len(IDS) + 1
    assert sorted(set(handled)) == sorted(handled)


def test_copies_of_the_record_agree_with_it(queue: Queue) -> None:
    context: QueueContext = queue._context
    found: Any = queue.execute(lambda _: record_copies.find(context.shards[1:], None))
    assert (found.shards, found.since) == (SHARDS, context._since)


def test_receiver_hears_of_a_lost_reply_if_there_is_nothing_else(queue: Queue, trouble: Trouble) -> None:
    queue.ack(list(claimed(queue)))
    trouble.make = lambda: ServerUnreachable("cut")
    with pytest.raises(ServerUnreachable, match="cut"):
        queue.receive(10)
    trouble.make = lambda: ServerNotReady("away")
    assert queue.receive(10) == []


@pytest.mark.parametrize("wait", [0, 0.2])
def test_receiver_hears_of_a_late_claim_if_there_is_nothing_else(queue: Queue, trouble: Trouble, wait: float) -> None:
    """A receiver that heard that there are no messages might end, and those that come would lose an attempt."""
    queue.purge()
    queue.send("x", id=min(set(IDS) - healthy(queue)))
    trouble.make = lambda: Unanswered("node")
    for _ in range(2):
        with pytest.raises(ServerUnreachable, match="has not answered yet"):
            queue.receive(10, wait=wait)
    trouble.answer()
    assert [each.attempt for each in queue.receive(10, wait=wait)] == [1]
    assert queue.receive(10, wait=wait) == []


@pytest.mark.parametrize("wait", [0, 0.2])
@pytest.mark.parametrize("is_heard_by_consumer", [False, True])
def test_receiver_hears_that_the_reply_to_a_late_claim_is_lost(
    queue: Queue, trouble: Trouble, wait: float, is_heard_by_consumer: bool
) -> None:
    """It may have brought messages; the shard itself is unavailable by then, which is not an error."""
    queue.purge()
    trouble.make = lambda: Unanswered("node")
    with pytest.raises(ServerUnreachable, match="has not answered yet"):
        queue.receive(10)
    trouble.make = lambda: ServerNotReady("away")
    for error, _ in trouble.late:
        error.answer(ServerUnreachable("the reply is lost"))
    if is_heard_by_consumer:
        assert claimed(queue) == []
    with pytest.raises(ServerUnreachable, match="the reply is lost"):
        queue.receive(10, wait=wait)
    assert queue.receive(10, wait=wait) == []


def test_consumer_repeats_a_late_claim_whose_reply_is_lost(queue: Queue, trouble: Trouble) -> None:
    """So a receiver of the same queue need not hear of it."""
    queue.purge()
    names = ClaimNames()
    trouble.make = lambda: Unanswered("node")
    assert not queue.execute(claim, partial(Message, queue), 100, 60_000, False, (), "consumer", names).messages
    trouble.make = lambda: ServerNotReady("away")
    for error, _ in trouble.late:
        error.answer(ServerUnreachable("the reply is lost"))
    assert queue.receive(10) == []


@pytest.mark.parametrize("shards", [SHARDS, None])
def test_client_that_starts_without_the_first_shard_finds_the_record(
    queue: Queue, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, shards: int | None
) -> None:
    with Queue("jobs", url=redis_server.url, shards=shards) as late:
        late._context.spans_nodes = lambda: True
        trouble = Trouble(late, 0)
        trouble.make = lambda: ServerNotReady("away")
        monkeypatch.setattr(late._executor, "run", trouble.run)
        (id,) = [each for each in IDS if queue._context.shard(each) is queue._context.shards[2]][:1]
        info = late.get(id)
        assert info is not None
        assert len(late._context.shards) == SHARDS
        trouble.make = None
        late._context.look_again()
        assert late.stats().sent == len(IDS)
        assert late._context.losses == 0


def test_idle_consumer_takes_the_message_of_a_late_claim(queue: Queue) -> None:
    queue.purge()
    run, slow = queue._executor.run, threading.Event()

    def late(calls: Any, repeat: bool = True) -> Any:
        results = run(calls, repeat)
        for place, call in enumerate(calls):
            is_claim = call.script is not None and call.script.name == "ready_to_unack" and "{jobs#1}" in call.key
            if is_claim and results[place].ids and not slow.is_set():
                slow.set()
                reply, found = Unanswered("node"), results[place]
                results[place] = reply
                threading.Timer(0.02, reply.answer, [found]).start()
        return results

    queue._executor.run = late  # type: ignore[method-assign]
    handled: list[Message] = []
    consumer = Consumer(queue, handled.append)
    consumer.start()
    try:
        assert eventually(lambda: len(queue.consumers()) == 1)
        queue.send("x", id=min(set(IDS) - healthy(queue)))
        assert eventually(lambda: bool(handled), seconds=20)
    finally:
        consumer.stop()
    assert slow.is_set()
    assert {each.attempt for each in handled} == {1}
    assert queue.stats().lease_lost == 0


def test_large_messages_to_send_wait_for_their_shard(queue: Queue, trouble: Trouble) -> None:
    queue.purge()
    (target, *_) = set(IDS) - healthy(queue)
    queue.send("x", id=target, max_retries=0)
    runs: list[Message] = []

    def handler(message: Message) -> Ack | None:
        runs.append(message)
        if message.id != target:
            return None
        trouble.make = lambda: ServerUnreachable("away")
        threading.Timer(2.0, setattr, [trouble, "make", None]).start()
        return Ack(then=[Outgoing("y" * 1_040_000, id="large")])

    consumer = Consumer(queue, handler)
    consumer.start()
    try:
        assert eventually(lambda: {each.id for each in runs} == {target, "large"}, seconds=20)
    finally:
        consumer.stop()
    assert [each.id for each in runs].count(target) == 1
    assert queue.stats().dead == 0
