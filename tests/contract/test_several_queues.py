"""Several queues in one consumer: how they share its handlers, in both APIs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from delayq import Consumer, Middleware, Outgoing, Queue, aio
from delayq.errors import HandlerMissing, InvalidInput
from delayq.runtime import consumer_run
from delayq.runtime.fair_dispatch import FairDispatcher
from tests.contract.conftest import Body, Make, Now, examine, registered
from tests.harness.awaiting import Awaited

SECONDS = 120.0  # a time limit that no test depends on

Run = Callable[..., int]
Until = Callable[[FairDispatcher], bool]
Post = Callable[[Any, str], None]


@pytest.fixture
def high(make: Make) -> Queue:
    return make("high")


@pytest.fixture
def low(make: Make) -> Queue:
    return make("low")


@pytest.fixture
def post(kind: str, client: Any, now: Now) -> Iterator[Post]:
    """``post(queue, id)``: send to a queue of either API from within a handler, once for each id."""
    senders: dict[str, Queue] = {}

    def post(queue: Any, id: str) -> None:
        if queue.name not in senders:
            senders[queue.name] = Queue(queue.name, redis=client, clock=now, shards=3 if "shards" in kind else 1)
        senders[queue.name].send(id, id=id)

    yield post
    for queue in senders.values():
        queue.close()


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> list[FairDispatcher]:
    """The dispatchers of the consumers that are run."""
    made: list[FairDispatcher] = []

    def make(*args: Any) -> FairDispatcher:
        made.append(FairDispatcher(*args))
        return made[-1]

    monkeypatch.setattr(consumer_run, "FairDispatcher", make)
    return made


@pytest.fixture
def run(high: Any, gates: list[FairDispatcher]) -> Run:
    """``run(queues, handler, until=…, max_messages=…, stop=…, **options)``: serve queues in one consumer.

    Before it handles a message, the handler waits until ``until(gate)`` is true for the consumer's dispatcher. The
    consumer ends after `max_messages`, or at the first message, or when nothing is due.
    """

    def run(
        queues: Any,
        handler: Body | None,
        until: Until = lambda _: True,
        max_messages: int | None = None,
        stop: bool = False,
        **options: Any,
    ) -> int:
        limits: dict[str, Any] = {"burst": not (max_messages or stop), "max_messages": max_messages}

        def handle(message: Any) -> Any:
            deadline = time.monotonic() + SECONDS
            while not until(gates[-1]) and time.monotonic() < deadline:
                time.sleep(0.001)
            if stop:
                consumers[0].stop()
            return handler and handler(message)

        async def handle_async(message: Any) -> Any:
            deadline = time.monotonic() + SECONDS
            while not until(gates[-1]) and time.monotonic() < deadline:  # noqa: ASYNC110  # other tasks change the condition
                await asyncio.sleep(0.001)
            if stop:
                await consumers[0].stop()
            return handler and handler(message)

        async def consume() -> int:
            consumers.append(aio.Consumer(_targets(queues), handler and handle_async, **options))
            return int(await consumers[0].run(**limits))

        consumers: list[Any] = []
        if isinstance(high, Awaited):
            return int(high.run(consume()))
        consumers.append(Consumer(queues, handler and handle, **options))
        return int(consumers[0].run(**limits))

    return run


def _targets(queues: Any) -> Any:
    if isinstance(queues, Mapping):
        return {each.target: weight for each, weight in queues.items()}
    if isinstance(queues, list):
        return [each.target if isinstance(each, Awaited) else each for each in queues]
    return queues


def each_waits(gate: FairDispatcher) -> bool:
    """Whether a message of each queue waits for a permit."""
    return all(lane.waiting for lane in gate.lanes)


def fill(queue: Any, count: int) -> None:
    queue.send_many(Outgoing(number) for number in range(count))


def note(seen: list[str]) -> Body:
    """Return a handler that notes the queue of each message."""
    return lambda message: seen.append(message.queue)


def balances(queue: Any) -> bool:
    stats = queue.stats()
    return bool(stats.unack == stats.missing == 0 and stats.inside + stats.acked == stats.sent)


def test_backlogged_queues_are_served_by_their_weights(high: Queue, low: Queue, run: Run):
    fill(high, 200)
    fill(low, 100)
    seen: list[str] = []

    def each_waits_or_enough_were_seen(gate: FairDispatcher) -> bool:
        return each_waits(gate) or len(seen) >= 120

    handled = run({high: 5, low: 1}, note(seen), each_waits_or_enough_were_seen, max_messages=130, concurrency=1)
    assert handled == 130
    for end in range(1, 121):
        assert abs(seen[:end].count("high") - end * 5 / 6) < 2  # within one, as either queue may come first
    assert balances(high)
    assert balances(low)


def test_queues_of_a_list_have_the_same_weight(high: Queue, low: Queue, run: Run):
    fill(high, 100)
    fill(low, 100)
    seen: list[str] = []

    def each_waits_or_enough_were_seen(gate: FairDispatcher) -> bool:
        return each_waits(gate) or len(seen) >= 40

    assert run([high, low], note(seen), each_waits_or_enough_were_seen, max_messages=50, concurrency=1) == 50
    assert seen[:40].count("high") in (19, 20, 21)


def test_strict_priority_starts_no_message_of_the_second_queue_while_the_first_has_work(high: Any, low: Any, run: Run):
    fill(low, 50)
    fill(high, 50)
    seen: list[str] = []
    assert run([high, low], note(seen), strict=True, concurrency=2) == 100
    assert (seen.count("high"), seen.count("low")) == (50, 50)
    assert seen.index("low") >= 49  # the last of the first queue may run beside it and not be noted yet


def test_idle_queue_leaves_all_capacity_to_the_other(high: Queue, low: Queue, run: Run):
    """As many of its handlers run as the concurrency allows: each waits for the others."""
    fill(low, 4)
    most: list[int] = [0]

    def all_run(gate: FairDispatcher) -> bool:
        most[0] = max(most[0], gate.lanes[1].running)
        return most[0] == 4

    assert run({high: 1000, low: 1}, lambda _: None, all_run, concurrency=4) == 4
    assert most == [4]
    assert balances(low)


@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "weights"])
def test_message_that_arrives_while_the_other_queue_is_busy_starts_next(
    high: Any, low: Any, run: Run, post: Post, is_strict: bool
):
    fill(low, 5)
    seen: list[str] = []

    def urgent_has_come(gate: FairDispatcher) -> bool:
        if not seen:
            post(high, "urgent")  # under the same id: once
        return bool(seen) or len(gate.lanes[0].waiting) == 1

    queues = [high, low] if is_strict else {high: 5, low: 1}
    assert run(queues, note(seen), urgent_has_come, concurrency=1, strict=is_strict) == 6
    assert seen == ["low", "high", "low", "low", "low", "low"]


def test_drain_continues_while_a_handler_sends_to_the_other_queue(high: Any, low: Any, run: Run, post: Post):
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.queue)
        if len(seen) < 20:
            post(low if message.queue == "high" else high, f"number {len(seen)}")

    fill(high, 1)
    assert run([high, low], handle) == 20
    assert seen == ["high", "low"] * 10


def test_max_messages_counts_messages_of_all_queues(high: Queue, low: Queue, run: Run):
    fill(high, 5)
    fill(low, 5)
    assert run([high, low], lambda _: None, max_messages=7, concurrency=3) == 7
    assert high.stats().acked + low.stats().acked == 7
    assert balances(high)
    assert balances(low)


def test_waiting_messages_are_returned_unstarted_at_the_end(high: Queue, low: Queue, run: Run):
    fill(high, 5)
    fill(low, 5)
    assert run([high, low], lambda _: None, each_waits, stop=True, concurrency=1) == 1
    for queue in (high, low):
        assert queue.stats().released >= 1
        assert {message.attempts for message in queue.peek("ready", limit=5)} == {0}
        assert balances(queue)
        assert examine(queue).healthy


def test_each_queue_has_its_own_handler_and_middleware(make: Make, run: Run):
    around: list[tuple[str, str]] = []
    seen: list[tuple[str, str]] = []

    def noting(notes: list[tuple[str, str]], name: str) -> Body:
        return lambda message: notes.append((name, message.payload))

    queues = []
    for name in ("high", "low"):
        middleware = Middleware()
        middleware.before_delivery(noting(around, name))
        queues.append(make(name, middleware=middleware))
        queues[-1].send(name)
        registered(queues[-1], queues[-1].handler, noting(seen, name))
    assert run(queues, None) == 2
    assert sorted(seen) == sorted(around) == [("high", "high"), ("low", "low")]


def test_failures_in_one_queue_do_not_affect_the_other(high: Queue, low: Queue, run: Run):
    fill(high, 3)
    fill(low, 3)
    assert run([high, low], lambda message: message.queue == "low") == 6
    assert (high.stats().nacked, low.stats().acked) == (3, 3)


def test_queue_without_handler_is_named(high: Any, low: Any, run: Run):
    registered(high, high.handler, lambda _: None)
    with pytest.raises(HandlerMissing, match="queue low has no handler"):
        run([high, low], None)


UNSERVED: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda _high, _low: [], "a consumer needs a queue: give one, or several in a list"),
    (lambda _high, _low: {}, "a consumer needs a queue"),
    (lambda _high, _low: "high", r"expected a delayq\.(aio\.)?Queue, got 'high'"),
    (lambda _high, _low: None, r"expected a delayq\.(aio\.)?Queue, got None"),
    (lambda high, _low: [high, "low"], r"expected a delayq\.(aio\.)?Queue, got 'low'"),
    (lambda high, _low: [high, high], "Queue high> is given twice: give it once, with a weight"),
    (
        lambda high, low: {high: 0, low: 1},
        "the weight of <(?:aio.)?Queue high> is 0: give a whole number from 1 to 1,000",
    ),
    (lambda high, low: {high: 1, low: 1001}, "the weight of <(?:aio.)?Queue low> is 1001: give a whole number"),
    (lambda high, low: {high: 1, low: True}, "the weight of <(?:aio.)?Queue low> is True: give a whole number"),
    (lambda high, low: {high: 1, low: 2.5}, r"the weight of <(?:aio.)?Queue low> is 2\.5: give a whole number"),
]


def test_invalid_list_of_queues_is_refused(high: Any, low: Any, run: Run, subtests: pytest.Subtests):
    for given, named in UNSERVED:
        with subtests.test(named), pytest.raises(InvalidInput, match=named):
            run(given(high, low), lambda _: None)


def test_strict_priority_with_weights_is_refused(high: Any, low: Any, run: Run):
    with pytest.raises(InvalidInput, match="strict=True uses the order of the queues: give a list"):
        run({high: 5, low: 1}, lambda _: None, strict=True)
