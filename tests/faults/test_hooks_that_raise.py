"""Whatever a user's function raises, the consumer continues: each message ends as promised, and the log says why.

The functions are found by the signatures of the public API. A new one without a case here fails the first test.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from delayq import Consumer, Message, Middleware, Queue, Reject, Topic, TopicConsumer, aio
from delayq.errors import StartFailed
from delayq.telemetry import Telemetry
from tests.harness.raised import ERRORS
from tests.harness.servers import RedisServer

KINDS = list(ERRORS)


def fail(name: object) -> Any:
    error = ERRORS[str(name)]()
    raise error


def by_id(message: Any, *_: object) -> Any:
    """A hook that raises what the id of its message says."""
    fail(message.id.partition("@")[0])


class Cycle:
    """A hook that raises each kind in turn."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object, **__: object) -> Any:
        self.calls += 1
        fail(KINDS[self.calls % len(KINDS)])


DONE, DEAD, RETRY = {"acked": len(KINDS)}, {"dead": len(KINDS)}, {"retry": len(KINDS)}


@dataclass(frozen=True)
class Case:
    """A hook: how to register it, what the handler does, and where the messages end.

    Attributes:
        register: called with the queue's middleware.
        options: of the queue.
    """

    ends: dict[str, int]
    register: Callable[[Middleware], object] = id
    options: dict[str, Any] | None = None
    handler: Callable[[Message], object] = bool
    max_retries: int = 0
    says: str = ""


def refuse(_: object) -> None:
    raise Reject("unwanted")


def break_down(_: object) -> None:
    raise ValueError("the handler's own")


def around(message: Message) -> Iterator[None]:
    by_id(message)
    yield


def around_late(message: Message) -> Iterator[None]:
    yield
    by_id(message)


BACKOFF = Cycle()

CASES: dict[str, Case] = {
    "handler": Case(DEAD, handler=by_id, says="delivery failed"),
    "Middleware.before_delivery": Case(DEAD, lambda m: m.before_delivery(by_id), says="delivery failed"),
    "Middleware.after_delivery": Case(DONE, lambda m: m.after_delivery(by_id), says="middleware failed"),
    "Middleware.around_delivery": Case(DEAD, lambda m: m.around_delivery(around), says="delivery failed"),
    "Middleware.around_delivery late": Case(DEAD, lambda m: m.around_delivery(around_late), says="delivery failed"),
    "Middleware.on_dead": Case(DEAD, lambda m: m.on_dead(by_id), handler=refuse, says="on_dead function failed"),
    "Middleware.on_stop": Case(DONE, lambda m: [m.on_stop(Cycle()) for _ in KINDS], says="on_stop function failed"),
    "backoff": Case(
        RETRY,
        options={"backoff": lambda _attempt, _error: BACKOFF()},
        handler=break_down,
        max_retries=1,
        says="backoff failed",
    ),
    "concurrency_key": Case(
        DEAD, options={"concurrency_key": by_id, "concurrency_per_key": 1}, says="concurrency_key failed"
    ),
}
ELSEWHERE = {
    "Middleware.before_send": "raises in the caller's send",
    "Middleware.around_send": "raises in the caller's send",
    "Middleware.after_send": "test_send_hook_that_raises_changes_nothing",
    "Middleware.on_start": "test_start_hook_that_raises_lets_nothing_start",
    "Queue.handler": "handler",
    "Queue.batch_handler": "test_batch_handler_that_raises",
    "Queue.cron": "test_schedule_function_that_raises",
    "Queue.task": "test_task_and_its_backoff_that_raise",
    "Consumer.initializer": "tests/runtime/test_process_pool.py",
    "TopicConsumer.backoff": "test_topic_consumer",
    "TopicConsumer.handler": "test_topic_consumer",
    "Queue.clock": "a clock is for tests",
    "Topic.clock": "a clock is for tests",
}


def hooks() -> Iterator[str]:
    """Find each function that a user may give to the public API."""
    for name, method in inspect.getmembers(Middleware, inspect.isfunction):
        if "function" in inspect.signature(method).parameters:
            yield f"Middleware.{name}"
    for name, method in inspect.getmembers(Queue, inspect.isfunction):
        returned = str(inspect.signature(method).return_annotation)
        if "function" in inspect.signature(method).parameters or "Callable[[Handler]" in returned:
            yield f"Queue.{name}"
    for cls in (Queue, Consumer, Topic, TopicConsumer):
        for parameter in inspect.signature(cls).parameters.values():
            if "Callable" in str(parameter.annotation) or "Backoff" in str(parameter.annotation):
                yield f"{cls.__name__}.{parameter.name}"


def test_every_function_of_the_user_has_a_case():
    assert {"Middleware.on_dead", "Queue.backoff", "Consumer.handler"} <= set(hooks())
    known = {*CASES, *ELSEWHERE}
    assert [each for each in hooks() if each not in known and each.partition(".")[2] not in known] == []


@pytest.fixture(params=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "async")


def on_a_thread(work: Callable[[], Any]) -> Any:
    """Run something outside the main thread, where only functions raise KeyboardInterrupt."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return results[0]


def drain(
    server: RedisServer, is_async: bool, prepare: Callable[[Any], object], handler: Any, options: dict[str, Any]
) -> Any:
    """Drain a queue; return the consumer's result, or its error."""

    def run() -> int:
        with Queue("jobs", url=server.url, **options) as queue:
            prepare(queue)
            return Consumer(queue, handler, concurrency=2).drain()

    async def run_async() -> int:
        async with aio.Queue("jobs", url=server.url, **options) as queue:
            prepare(queue)
            return await aio.Consumer(queue, handler, concurrency=2).drain()

    return on_a_thread(lambda: asyncio.run(run_async()) if is_async else run())


def awaited(function: Callable[[Any], object]) -> Callable[[Any], Any]:
    async def hook(argument: Any) -> None:
        await asyncio.sleep(0)
        function(argument)

    return hook


def counts(queue: Queue) -> dict[str, int]:
    stats = queue.stats()
    found = {"acked": stats.acked, "dead": stats.dead, "retry": stats.retry, "unack": stats.unack, "ready": stats.ready}
    return {name: count for name, count in found.items() if count}


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url) as queue:
        yield queue


@pytest.mark.parametrize("name", CASES)
def test_hook_that_raises_ends_no_consumer(
    queue: Queue, redis_server: RedisServer, is_async: bool, name: str, caplog: pytest.LogCaptureFixture
):
    case = CASES[name]
    for kind in KINDS:
        queue.send("payload", id=kind, max_retries=case.max_retries)
    handled = drain(
        redis_server, is_async, lambda each: case.register(each.middleware), case.handler, case.options or {}
    )
    assert (handled, counts(queue)) == (len(KINDS), case.ends)
    assert sum(case.says in record.getMessage() for record in caplog.records) == len(KINDS)


@pytest.mark.parametrize("kind", ["on_dead", "on_stop"])
def test_async_hook_that_raises_ends_no_consumer(
    queue: Queue, redis_server: RedisServer, kind: str, caplog: pytest.LogCaptureFixture
):
    for each in KINDS:
        queue.send("payload", id=each)

    def prepare(each: aio.Queue) -> None:
        if kind == "on_dead":
            each.middleware.on_dead(awaited(by_id))
        else:
            for _ in KINDS:
                each.middleware.on_stop(awaited(Cycle()))

    assert drain(redis_server, True, prepare, refuse, {}) == len(KINDS)
    assert counts(queue) == DEAD
    assert sum(f"{kind} function failed" in record.getMessage() for record in caplog.records) == len(KINDS)


@pytest.mark.parametrize("error", KINDS)
def test_start_hook_that_raises_lets_nothing_start(queue: Queue, redis_server: RedisServer, is_async: bool, error: str):
    queue.send("payload")
    hook: Any = lambda _: fail(error)  # noqa: E731
    chosen = awaited(hook) if is_async else hook
    ended = drain(redis_server, is_async, lambda each: each.middleware.on_start(chosen), bool, {})
    assert isinstance(ended, StartFailed)
    assert queue.stats().ready + queue.stats().pending == 1


def test_send_hook_that_raises_changes_nothing(redis_server: RedisServer, caplog: pytest.LogCaptureFixture):
    def send() -> int:
        with Queue("jobs", url=redis_server.url) as queue:
            queue.middleware.after_send(by_id_of_sent)
            return sum(queue.send("payload", id=kind).created for kind in KINDS)

    assert on_a_thread(send) == len(KINDS)
    assert sum("middleware failed" in record.getMessage() for record in caplog.records) == len(KINDS)


def by_id_of_sent(_: object, sent: Any) -> None:
    by_id(sent)


def test_batch_handler_that_raises(queue: Queue, redis_server: RedisServer, is_async: bool):
    for kind in KINDS:
        queue.send("payload", id=kind, max_retries=0)

    def prepare(each: Any) -> None:
        each.batch_handler(max_messages=1, max_wait=0)(lambda messages: by_id(messages[0]))

    assert drain(redis_server, is_async, prepare, None, {}) == len(KINDS)
    assert counts(queue) == DEAD


def test_schedule_function_that_raises(queue: Queue, redis_server: RedisServer, is_async: bool):
    for kind in KINDS:
        queue.schedules.add(kind, "@yearly", max_retries=0)
        queue.schedules.run_now(kind)

    def prepare(each: Any) -> None:
        for kind in KINDS:
            each.cron("@yearly", name=kind, max_retries=0)(by_id)

    assert drain(redis_server, is_async, prepare, None, {}) == len(KINDS)
    assert queue.stats().dead == len(KINDS)


@pytest.mark.parametrize("max_retries", [0, 1])
def test_task_and_its_backoff_that_raise(queue: Queue, redis_server: RedisServer, is_async: bool, max_retries: int):
    for kind in KINDS:
        queue.send({"kind": kind}, id=kind, task="raises", max_retries=max_retries)

    def raises(kind: str) -> None:
        fail(kind)

    def prepare(each: Any) -> None:
        each.task(backoff=Cycle())(raises)

    assert drain(redis_server, is_async, prepare, None, {}) == len(KINDS)
    assert counts(queue) == (RETRY if max_retries else DEAD)


class Broken(SpanProcessor):
    """A span processor that raises each kind in turn, at the start or the end of spans."""

    def __init__(self, at_start: bool) -> None:
        self._cycle, self._at_start = Cycle(), at_start

    def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002
        if self._at_start:
            self._cycle()

    def on_end(self, span: ReadableSpan) -> None:  # noqa: ARG002
        if not self._at_start:
            self._cycle()


@pytest.mark.parametrize("at_start", [True, False])
def test_telemetry_that_raises(queue: Queue, redis_server: RedisServer, is_async: bool, at_start: bool):
    provider = TracerProvider()
    provider.add_span_processor(Broken(at_start))
    telemetry = Telemetry(provider)

    def send() -> None:
        with Queue("jobs", url=redis_server.url) as traced:
            telemetry.instrument(traced)
            for kind in KINDS:
                traced.send("payload", id=kind)

    assert on_a_thread(send) is None
    assert drain(redis_server, is_async, telemetry.instrument, bool, {}) == len(KINDS)
    assert counts(queue) == DONE


def test_log_processor_that_raises(queue: Queue, redis_server: RedisServer, is_async: bool):
    for kind in KINDS:
        queue.send("payload", id=kind, max_retries=0)
    structlog.configure(processors=[Cycle()])
    try:
        assert drain(redis_server, is_async, id, break_down, {}) == len(KINDS)
    finally:
        structlog.reset_defaults()
    assert counts(queue) == DEAD


@pytest.mark.parametrize(
    "hook", ["handler", "backoff", "before_delivery", "after_delivery", "around_delivery", "on_stop"]
)
def test_topic_consumer(redis_server: RedisServer, is_async: bool, hook: str):
    failing = hook in {"handler", "backoff", "before_delivery", "around_delivery"}
    middleware, kinds = Middleware(), Cycle()
    hooks: dict[str, Any] = {
        "before_delivery": kinds,
        "after_delivery": kinds,
        "around_delivery": lambda _: kinds(),
        "on_stop": kinds,
    }
    if hook in hooks:
        getattr(middleware, hook)(hooks[hook])
    handler: Any = kinds if hook == "handler" else break_down if hook == "backoff" else bool
    options: dict[str, Any] = {"middleware": middleware, "backoff": kinds if hook == "backoff" else None}
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", "0", max_deliveries=5)
        for kind in KINDS:
            topic.publish(kind)

        async def run_async() -> int:
            async with aio.Topic("orders", url=redis_server.url) as other:
                theirs = await other.group("billing", "0", max_deliveries=5)
                return await aio.TopicConsumer(theirs, handler, **options).drain()

        def run() -> int:
            return TopicConsumer(group, handler, **options).drain()

        assert on_a_thread(lambda: asyncio.run(run_async()) if is_async else run()) == len(KINDS)
        assert len(group.unacked()) + len(list(group.dead())) == (len(KINDS) if failing else 0)
