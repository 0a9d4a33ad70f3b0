"""Which function handles a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakeredis
import pytest

from delayq import Consumer, Message, Middleware, Queue, RetryAfter, aio
from delayq.errors import HandlerMissing, InvalidInput, UnknownTask
from delayq.model import outcome as oc
from delayq.model.batch_handler import BatchHandler
from delayq.model.envelope import encode_envelope, parse
from delayq.runtime import handler_registry
from delayq.runtime.handler_registry import ConsumerHandlers, HandlerRegistry, Kind
from delayq.runtime.time_limit import TimeLimit
from tests.harness import pooled
from tests.harness.servers import RedisServer


@pytest.fixture
def client() -> Iterator[fakeredis.FakeRedis]:
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        yield client


@pytest.fixture
def queue(client: fakeredis.FakeRedis) -> Iterator[Queue]:
    with Queue("jobs", redis=client) as queue:
        yield queue


def test_occurrences_go_to_their_function_and_other_messages_to_the_handler(queue: Queue):
    seen: list[tuple[str, object]] = []

    @queue.cron("0 3 * * *", payload={"full": True})
    def nightly(message: Message) -> None:
        seen.append(("nightly", message.payload))

    @queue.cron("@yearly", name="by-the-year")
    def yearly(message: Message) -> None:
        seen.append(("yearly", message.payload))

    @queue.handler
    def others(message: Message) -> None:
        seen.append(("others", message.payload))

    Consumer(queue).drain()
    assert [(each.name, each.when, each.own) for each in queue.schedules.list()] == [
        ("by-the-year", "@yearly", True),
        ("nightly", "0 3 * * *", True),
    ]
    queue.schedules.add("plain", "@daily", "added")
    for name in ("nightly", "by-the-year", "plain"):
        queue.schedules.run_now(name)
    queue.send("sent")
    assert Consumer(queue, concurrency=1).drain() == 4
    assert sorted(seen, key=str) == [
        ("nightly", {"full": True}),
        ("others", "added"),
        ("others", "sent"),
        ("yearly", None),
    ]


def test_decorator_does_not_connect(queue: Queue, client: fakeredis.FakeRedis):
    queue.cron("@daily")(print)
    assert client.keys("*") == []


def test_consumer_without_the_function_of_a_schedule_does_not_swallow_its_messages(
    queue: Queue, client: fakeredis.FakeRedis
):
    queue.cron("@daily", name="nightly", max_retries=0)(print)
    Consumer(queue).drain()
    queue.schedules.run_now("nightly")
    with Queue("jobs", redis=client) as other:
        seen: list[Message] = []
        assert Consumer(other, seen.append).drain() == 1
        (dead,) = other.dead.list()
    assert seen == []
    assert dead.reason == "retries-exhausted"
    assert dead.error is not None
    assert dead.error.startswith("HandlerMissing: schedule 'nightly' has no handler here")
    assert dead.error.endswith("remove the old schedule: delayq cron remove jobs nightly")


def test_queue_with_only_schedules_does_not_swallow_other_messages(queue: Queue):
    queue.cron("@daily")(print)
    queue.send("x", max_retries=0)
    assert Consumer(queue).drain() == 1
    (dead,) = queue.dead.list()
    assert dead.error is not None
    assert dead.error.startswith("HandlerMissing: queue jobs has no handler here")


def test_queue_without_any_handler_has_no_consumer(queue: Queue):
    with pytest.raises(HandlerMissing, match="decorate"):
        Consumer(queue)


def test_two_functions_for_one_schedule_are_refused(queue: Queue):
    queue.cron("@daily", name="nightly")(print)
    with pytest.raises(InvalidInput, match="another name"):
        queue.cron("@hourly", name="nightly")(print)


def test_bad_schedule_is_refused_at_its_decorator(queue: Queue):
    with pytest.raises(InvalidInput, match="minute"):
        queue.cron("61 * * * *")
    with pytest.raises(InvalidInput, match="not callable"):
        queue.cron("@daily")(5)  # type: ignore[type-var]  # on purpose
    with pytest.raises(InvalidInput, match="schedule name"):
        queue.cron("@daily", name="")(print)


def test_changed_decorator_changes_the_stored_schedule(queue: Queue, client: fakeredis.FakeRedis):
    queue.cron("@daily", name="nightly")(print)
    Consumer(queue).drain()
    with Queue("jobs", redis=client) as newer:
        newer.cron("@hourly", name="nightly")(print)
        Consumer(newer).drain()
        (stored,) = newer.schedules.list()
        assert stored.when == "@hourly"
        assert len(newer.peek("pending")) == 1


def drain_sync(url: str, function: Callable[[Any], Any], is_batch: bool = False, **options: Any) -> None:
    with Queue("jobs", url=url, max_retries=0) as queue:
        (queue.batch_handler(max_wait=0) if is_batch else queue.handler)(function)
        Consumer(queue, concurrency=1, **options).drain()


def drain_async(url: str, function: Callable[[Any], Any], is_batch: bool = False, **options: Any) -> None:
    async def main() -> None:
        async with aio.Queue("jobs", url=url, max_retries=0) as queue:
            (queue.batch_handler(max_wait=0) if is_batch else queue.handler)(function)
            await aio.Consumer(queue, concurrency=1, **options).drain()

    asyncio.run(main())


def fine(handed: Any) -> None:
    pooled.fine(handed)


async def fine_async(handed: Any) -> None:
    pooled.fine(handed)


RUNS: dict[str, Callable[[str], None]] = {
    "threads": lambda url: drain_sync(url, pooled.fine),
    "threads, batches": lambda url: drain_sync(url, fine, is_batch=True),
    "threads, time limit": lambda url: drain_sync(url, pooled.fine, timeout=60),
    "processes": lambda url: drain_sync(url, pooled.fine, pool="process"),
    "event loop": lambda url: drain_async(url, fine_async),
    "event loop, batches": lambda url: drain_async(url, fine_async, is_batch=True),
    "event loop, plain": lambda url: drain_async(url, pooled.fine),
    "event loop, processes": lambda url: drain_async(url, pooled.fine, pool="process"),
}
"""Each way to run the handlers of a queue."""


@pytest.mark.parametrize("run", RUNS)
def test_main_function_never_gets_the_occurrences_of_a_function_that_is_missing(
    run: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(pooled.WHERE, str(tmp_path))
    with Queue("jobs", url=redis_server.url) as other:
        other.cron("@yearly", name="nightly", max_retries=0)(print)
        Consumer(other).drain()
        other.schedules.run_now("nightly")
        RUNS[run](redis_server.url)
        assert pooled.notes("fine") == []
        (dead,) = other.dead.list()
    assert dead.error is not None
    assert dead.error.startswith("HandlerMissing: schedule 'nightly' has no handler here")


UNKNOWN = "no function of that name here"
NAMED = Kind(
    "call",
    lambda message: message.headers["call"] if isinstance(message.headers["call"], str) else None,
    lambda _queue, _message: RetryAfter(60, UNKNOWN, counts=False),
    returns_values=True,
)
"""A kind whose functions return values, and whose messages wait for a consumer that has their function."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> HandlerRegistry:
    monkeypatch.setattr(handler_registry, "KINDS", (NAMED, *handler_registry.KINDS))
    return HandlerRegistry("jobs")


def message_of(
    headers: dict[str, Any] | None = None, timeout_ms: int | None = None, own: dict[str, Any] | None = None
) -> Message:
    created, envelope = parse(b"1700000000000" + encode_envelope("x", 3, None, headers, 10**6, timeout_ms, own))
    return Message(SimpleNamespace(name="jobs"), 0, "a", created, envelope, created, None, created, created, "r")


def handlers_of(registry: HandlerRegistry, main: Any, middleware: Middleware | None = None) -> ConsumerHandlers:
    return ConsumerHandlers(registry, main, middleware or Middleware(), TimeLimit(None))


def test_message_goes_to_the_function_that_it_names(registry: HandlerRegistry):
    registry.register_named(NAMED, "add", lambda _: "added")
    registry.register_named(NAMED, "drop", lambda _: "dropped")
    handlers = handlers_of(registry, lambda _: "main")
    for message, returned in [
        (message_of(), "main"),
        (message_of({"tenant": "a"}), "main"),
        (message_of(timeout_ms=1000), "main"),
        (message_of({"call": 5}), "main"),
        (message_of({"call": "add"}), oc.Done("added")),
        (message_of({"call": "drop", "tenant": "a"}, 1000), oc.Done("dropped")),
    ]:
        assert handlers.handle(message) == returned


def test_kind_decides_what_happens_to_a_message_whose_function_is_missing(registry: HandlerRegistry):
    seen: list[BaseException | None] = []
    middleware = Middleware()
    middleware.after_delivery(lambda _message, error: seen.append(error))
    handlers = handlers_of(registry, lambda _: "main", middleware)
    with pytest.raises(RetryAfter, match=UNKNOWN) as raised:
        handlers.handle(message_of({"call": "add"}))
    assert seen == [raised.value]
    assert oc.of_error(raised.value, None) == oc.Failed(60_000, f"RetryAfter: {UNKNOWN}", counts=False)


@pytest.mark.parametrize("value", [None, 5, True, 0.5, b"\xff", "", "x" * 300, "a\nb"], ids=repr)
@pytest.mark.parametrize("kind", handler_registry.KINDS, ids=lambda kind: kind.header)
def test_header_that_another_program_has_written_leaves_the_message_to_the_main_function(kind: Kind, value: Any):
    handlers = handlers_of(HandlerRegistry("jobs"), lambda _: "main")
    assert handlers.handle(message_of(own={kind.header: value})) == "main"


def test_batch_handler_is_chosen_like_any_other(registry: HandlerRegistry):
    registry.register_named(NAMED, "add", lambda _: "added")
    handlers = handlers_of(registry, BatchHandler.of(len, 10, 0))
    assert isinstance(handlers.main, BatchHandler)
    assert handlers.choose(message_of()) is handlers.choose(message_of({"tenant": "a"})) is handlers.main
    assert handlers.choose(message_of({"call": "add"})) is not handlers.main
    assert handlers.choose(message_of({"call": "gone"})) is not handlers.main


def test_message_of_an_unknown_task_raises_an_error_that_names_it():
    handlers = handlers_of(HandlerRegistry("jobs"), lambda _: "main")
    with pytest.raises(UnknownTask, match="this consumer of queue jobs has no task 'add'") as raised:
        handlers.handle(message_of(own={"delayq-task": "add"}))
    assert oc.of_error(raised.value, None) == oc.Unknown("add", f"UnknownTask: {raised.value}")


def generate() -> Iterator[int]:
    yield 1


VALUES: list[tuple[Any, oc.Outcome, oc.Outcome]] = [
    (None, oc.DONE, oc.DONE),
    (5, oc.DONE, oc.Done(5)),
    (False, oc.Failed(error="the handler returned False"), oc.Done(value=False)),
    (0, oc.DONE, oc.Done(0)),
]
"""What a function returns; its outcome as a verdict; its outcome as a value."""


@pytest.mark.parametrize(("returned", "verdict", "value"), VALUES, ids=repr)
def test_kind_says_whether_what_its_functions_return_is_a_verdict_or_a_value(
    registry: HandlerRegistry, returned: Any, verdict: oc.Outcome, value: oc.Outcome
):
    seen: list[BaseException | None] = []
    middleware = Middleware()
    middleware.after_delivery(lambda _message, error: seen.append(error))
    registry.register_named(NAMED, "add", lambda _: returned)
    handlers = handlers_of(registry, lambda _: returned, middleware)
    assert oc.of_return(handlers.handle(message_of())) == verdict
    seen.clear()
    assert oc.of_return(handlers.handle(message_of({"call": "add"}))) == value
    assert seen == [None]


def test_value_that_holds_unfinished_work_fails_the_delivery(registry: HandlerRegistry):
    registry.register_named(NAMED, "add", lambda _: generate())
    returned = handlers_of(registry, None).handle(message_of({"call": "add"}))
    assert oc.of_return(returned) == oc.Failed(
        error="TypeError: the task returned an object of type generator, which would never run"
    )


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_message_of_an_unknown_name_uses_up_no_retry(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, is_async: bool
):
    monkeypatch.setattr(handler_registry, "KINDS", (NAMED,))
    handled: list[Any] = []

    def register(queue: Any) -> None:
        queue.handler(lambda message: handled.append(message.payload))
        queue.handlers.register_named(NAMED, "add", lambda message: handled.append((message.payload, "added")))

    async def consume() -> None:
        async with aio.Queue("jobs", url=redis_server.url) as queue:
            register(queue)
            await aio.Consumer(queue).drain()

    with Queue("jobs", url=redis_server.url, max_retries=0) as queue:
        queue.send("plain")
        queue.send("known", headers={"call": "add"})
        queue.send("unknown", id="unknown", headers={"call": "drop"})
        if is_async:
            asyncio.run(consume())
        else:
            register(queue)
            Consumer(queue).drain()
        assert sorted(handled, key=str) == [("known", "added"), "plain"]
        info = queue.get("unknown")
        assert info is not None
        assert (info.state, info.attempts, info.error) == ("retry", 1, f"RetryAfter: {UNKNOWN}")


@pytest.mark.parametrize("timeout", [None, 5.0], ids=["no limit", "with a limit"])
def test_task_that_is_not_registered_is_found_once(queue: Queue, timeout: float | None):
    asked: list[str] = []

    def find(name: str) -> Callable[[Message], Any]:
        asked.append(name)
        if name != "shop.add":
            raise UnknownTask(f"no {name}", name)
        return lambda message: sum(message.payload["args"])

    assert not queue.handlers
    queue.handlers.find_task = find
    assert queue.handlers
    sums = [queue.send({"args": [1, n]}, task="shop.add", timeout=timeout) for n in range(3)]
    other = queue.send({}, task="shop.other")
    Consumer(queue, concurrency=1).drain()
    assert [queue.get(each.id) for each in sums] == [None] * 3
    info = queue.get(other.id)
    assert info is not None
    assert (info.state, info.attempts) == ("retry", 0)
    assert "no shop.other" in str(info.error)
    assert asked.count("shop.add") == 1


def test_registered_task_is_not_looked_for(queue: Queue):
    @queue.task
    def add(a: int) -> int:
        return a

    queue.handlers.find_task = pytest.fail
    add.send(1)
    assert Consumer(queue).drain() == 1
    assert queue.stats().acked == 1
