"""Hooks that a consumer calls beside its handler: at its start, at its stop, and when a message dies."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Consumer, Message, Middleware, Queue, aio, backoff
from delayq.errors import InvalidInput, Reject, StartFailed
from delayq.types import MessageInfo
from tests.contract.conftest import Drain, Make, Now, registered
from tests.harness.awaiting import Awaited


class Note(list[Any]):
    """What was called, in order."""

    def of(self, name: str) -> Any:
        """A function that notes that it was called."""
        return lambda _: self.append(name)


def failing(_: object) -> None:
    raise ValueError("boom")


def test_on_start_runs_before_the_first_message_and_on_stop_after_the_last(queue: Queue, drain: Drain):
    note = Note()
    for name in ("first", "second"):
        registered(queue, queue.middleware.on_start, note.of(f"start {name}"))
        registered(queue, queue.middleware.on_stop, note.of(f"stop {name}"))
    for n in range(2):
        queue.send(n)
    assert drain(queue, note.of("handled"), concurrency=1) == 2
    starts, stops = ["start first", "start second"], ["stop second", "stop first"]
    assert note == [*starts, "handled", "handled", *stops]
    note.clear()
    assert drain(queue, note.of("handled")) == 0
    assert note == [*starts, *stops]


def test_hooks_receive_the_consumer(queue: Queue, drain: Drain):
    seen: list[Any] = []
    registered(queue, queue.middleware.on_start, lambda consumer: seen.append((consumer.name, consumer.queues)))
    registered(queue, queue.middleware.on_stop, lambda consumer: seen.append(consumer.handled))
    queue.send("x")
    drain(queue, lambda _: None, name="me")
    ((name, (served,)), handled) = seen
    assert (name, served.name, handled) == ("me", queue.name, 1)


def test_failing_on_start_leaves_all_messages_and_calls_nothing_else(queue: Queue, drain: Drain):
    note = Note()
    registered(queue, queue.middleware.on_start, note.of("start"))
    registered(queue, queue.middleware.on_start, failing)
    registered(queue, queue.middleware.on_start, note.of("late"))
    registered(queue, queue.middleware.on_stop, note.of("stop"))
    queue.send("x")
    with pytest.raises(StartFailed, match=r"on_start function failing failed, so .*: ValueError: boom") as raised:
        drain(queue, note.of("handled"))
    assert isinstance(raised.value.__cause__, ValueError)
    assert note == ["start"]
    assert (queue.stats().delivered, queue.stats().acked) == (0, 0)


def test_failing_on_stop_is_logged_and_the_others_still_run(queue: Queue, drain: Drain):
    note = Note()
    registered(queue, queue.middleware.on_stop, note.of("stop"))
    registered(queue, queue.middleware.on_stop, failing)
    queue.send("x")
    with capture_logs() as lines:
        assert drain(queue, lambda _: None) == 1
    assert note == ["stop"]
    failed = [line for line in lines if line["event"] == "on_stop function failed"]
    assert [(line["function"], line["log_level"]) for line in failed] == [("failing", "error")]


@pytest.fixture
def deaths(queue: Queue) -> list[MessageInfo]:
    """What `on_dead` was called with."""
    infos: list[MessageInfo] = []
    registered(queue, queue.middleware.on_dead, infos.append)
    return infos


def rejects(_: Message) -> None:
    raise Reject("unwanted")


@pytest.mark.parametrize(
    ("handler", "reason", "error"),
    [(rejects, "unwanted", "Reject: unwanted"), (failing, "retries-exhausted", "ValueError: boom")],
    ids=["rejected", "exhausted"],
)
def test_on_dead_receives_what_get_returns(
    queue: Queue, drain: Drain, deaths: list[MessageInfo], handler: Any, reason: str, error: str
):
    queue.send({"n": 1}, id="a", max_retries=0, headers={"tenant": "a"}, timeout=600, expires_in=900)
    assert drain(queue, handler) == 1
    assert deaths == [queue.get("a")]
    assert (deaths[0].state, deaths[0].reason, deaths[0].error, deaths[0].payload) == ("dead", reason, error, {"n": 1})
    assert deaths[0].retries_used == 0


def test_on_dead_is_called_only_after_the_last_failure(make: Make, drain: Drain, now: Now):
    queue = make("fails", backoff=backoff.fixed(1))
    infos: list[MessageInfo] = []
    registered(queue, queue.middleware.on_dead, infos.append)
    queue.send("x", id="a", max_retries=1)
    drain(queue, failing)
    assert infos == []
    now.later(1)
    drain(queue, failing)
    assert infos == [queue.get("a")]
    assert (infos[0].attempts, infos[0].retries_used) == (2, 1)


def test_on_dead_is_called_for_a_message_without_a_payload(
    queue: Queue, drain: Drain, deaths: list[MessageInfo], client: redis.Redis
):
    queue.send("x", id="a")
    for key in client.keys("*msg:a"):
        client.delete(key)
    drain(queue, lambda _: None)
    assert deaths == [queue.get("a")]
    assert (deaths[0].reason, deaths[0].payload, deaths[0].attempts) == ("payload-missing", None, 0)


def test_on_dead_is_called_for_a_message_lost_too_often(
    queue: Queue, drain: Drain, deaths: list[MessageInfo], now: Now
):
    queue.send("x", id="a", max_retries=0)
    assert len(queue.receive()) == 1
    now.later(31)
    drain(queue, lambda _: None)
    assert deaths == [queue.get("a")]
    assert (deaths[0].reason, deaths[0].payload) == ("consumer-lost", "x")


def test_on_dead_is_called_for_a_message_with_an_invalid_key(make: Make, drain: Drain):
    infos: list[MessageInfo] = []

    def no_key(_: Message) -> str:
        raise Reject("no key")

    queue = make("keyed", shards=1, concurrency_per_key=1, concurrency_key=no_key)
    registered(queue, queue.middleware.on_dead, infos.append)
    queue.send("x", id="a")
    drain(queue, lambda _: None)
    assert infos == [queue.get("a")]
    assert infos[0].reason == "no key"


def test_on_dead_is_not_called_for_messages_that_end_otherwise(
    queue: Queue, drain: Drain, deaths: list[MessageInfo], now: Now
):
    queue.send("late", id="late", expires_in=1)
    now.later(2)
    queue.send("done")
    drain(queue, lambda _: None)
    queue.send("pulled")
    (pulled,) = queue.receive()
    pulled.reject("by hand")
    drain(queue, lambda _: None)
    assert deaths == []
    assert (queue.stats().expired, queue.stats().dead) == (1, 1)


def test_failing_on_dead_is_logged_and_the_other_hooks_still_run(queue: Queue, drain: Drain):
    infos: list[MessageInfo] = []
    registered(queue, queue.middleware.on_dead, failing)
    registered(queue, queue.middleware.on_dead, infos.append)
    for id in ("a", "b"):
        queue.send("x", id=id)
    with capture_logs() as lines:
        assert drain(queue, rejects) == 2
    assert sorted(info.id for info in infos) == ["a", "b"]
    assert queue.stats().dead == 2
    failed = [line for line in lines if line["event"] == "on_dead function failed"]
    assert sorted((line["queue"], line["id"], line["function"]) for line in failed) == [
        (queue.name, "a", "failing"),
        (queue.name, "b", "failing"),
    ]


def test_on_dead_is_called_for_a_message_in_a_batch(queue: Queue, drain: Drain, deaths: list[MessageInfo]):
    registered(
        queue, queue.batch_handler(max_messages=10, max_wait=3600), lambda batch: {batch[0].id: Reject("unwanted")}
    )
    for n in range(3):
        queue.send(n)
    assert drain(queue, None) == 3
    assert [info.reason for info in deaths] == ["unwanted"]


def test_consumer_of_several_queues_calls_the_hooks_of_each_queue(make: Make):
    note, infos, common = Note(), list[MessageInfo](), Middleware()
    first, second = make("first", middleware=common), make("second", middleware=common)
    third = make("third")
    registered(first, common.on_start, note.of("start"))
    registered(first, common.on_stop, note.of("stop"))
    registered(first, common.on_dead, infos.append)
    registered(third, third.middleware.on_dead, note.of("third"))
    queues = [first, second, third]
    for queue in queues:
        queue.send("x", id=queue.name)
    run_all(queues, rejects)
    assert sorted((info.queue, info.id) for info in infos) == [("first", "first"), ("second", "second")]
    assert (note[0], note[-1], sorted(note)) == ("start", "stop", ["start", "stop", "third"])


def run_all(queues: list[Any], handler: Any) -> None:
    """Let one consumer handle what is due in several queues of one API."""
    if isinstance(queues[0], Awaited):
        queues[0]._runner.run(aio.Consumer([each.target for each in queues], handler).drain())
    else:
        Consumer(queues, handler).drain()


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("register", ["on_start", "on_stop", "on_dead"])
def test_hook_with_a_wrong_signature_is_refused_at_registration(register: str):
    def generator(_: object) -> Any:
        yield

    async def async_generator(_: object) -> Any:
        yield

    wrong: list[tuple[Any, str]] = [
        (5, "hook 5 is not callable"),
        (lambda: None, "cannot be called with"),
        (lambda _, other: other, "cannot be called with"),
        (generator, "is a generator function"),
        (async_generator, "is a generator function"),
    ]
    middleware = Middleware()
    for function, text in wrong:
        with pytest.raises(InvalidInput, match=text):
            getattr(middleware, register)(function)
    assert middleware.hooks == []


@pytest.mark.same_on_all_clients
def test_sync_consumer_refuses_an_async_hook():
    async def opened(_: object) -> None: ...

    for register in ("on_start", "on_stop", "on_dead"):
        middleware = Middleware()
        getattr(middleware, register)(opened)
        with pytest.raises(InvalidInput, match=r"hook .*opened is async: .* delayq\.aio"):
            Consumer(Queue("jobs", middleware=middleware), print)
