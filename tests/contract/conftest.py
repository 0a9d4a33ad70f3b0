"""Fixtures: the same queue on a real Redis, through each kind of client and in both APIs, and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Queue, backoff, doctor
from delayq.model.units import from_ms
from delayq.protocol.command import Command
from delayq.testing import Clock
from tests.harness.awaiting import Awaited, Awaiting
from tests.harness.kinds import give_kinds
from tests.harness.servers import PATIENT, RedisServer

# Further kinds, for `make test-all`: decoded replies, RESP3, shards, fakeredis. tests/testing has its async client.
VARIANTS: dict[str, dict[str, Any]] = {
    "redis-resp3-decoding": {"protocol": 3, "decode_responses": True},
    "redis-shards": {},
    "aio-resp3-decoding-shards": {"protocol": 3, "decode_responses": True},
    "fakeredis": {},
}
NOWHERE = "redis://127.0.0.1:1/0"  # an in-memory queue must not even try to connect


class Now(Clock):
    """The time that the scripts use."""

    def later(self, seconds: float) -> None:
        """Let seconds pass."""
        self.advance(seconds)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    give_kinds(metafunc, VARIANTS)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, now: Now, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client of an empty server."""
    if kind == "fakeredis":
        yield now.client
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    with server.client(**({} if kind.startswith("aio") else VARIANTS.get(kind, {}))) as client:
        yield client


@pytest.fixture
def now() -> Iterator[Now]:
    now = Now(start=from_ms(1_700_000_000_000))
    yield now
    now.close()


Make = Callable[..., Queue]


@pytest.fixture
def make(kind: str, client: redis.Redis, now: Now, request: pytest.FixtureRequest) -> Iterator[Make]:
    """``make(**options)``: a queue, which uses the test's time unless it is given a clock.

    In the async API, its calls are awaited for the test.
    """
    made: list[Queue] = []
    awaiting: Awaiting | None = None
    if kind.startswith("aio"):
        awaiting = Awaiting(client, request.getfixturevalue("redis_server").url, **PATIENT | VARIANTS.get(kind, {}))

    def make(name: str = "jobs", **options: Any) -> Queue:
        given: dict[str, Any] = {"shards": 3 if kind.endswith("shards") else 1} | options
        if kind == "fakeredis" and not {"clock", "redis", "url"} & set(given):
            made.append(Queue(name, url=NOWHERE, **given))
            now.add(made[-1])
            return made[-1]
        defaults: dict[str, Any] = {"clock": now, "redis": client}
        given = defaults | given
        made.append(awaiting.queue(name, given) if awaiting else Queue(name, **given))
        return made[-1]

    yield make
    for queue in made:
        queue.close()
    if awaiting:
        awaiting.close()


Body = Callable[[Any], Any]
Drain = Callable[..., int]


@pytest.fixture
def drain(kind: str) -> Drain:
    """``drain(queue, handler, …)``: let a consumer of the queue's API handle everything that is due.

    In the async API, the handler becomes async, except on one kind of client: there it stays a plain function.
    """

    def drain(queue: Any, handler: Body | None, **options: Any) -> int:
        if not isinstance(queue, Awaited):
            return Consumer(queue, handler, **options).drain()

        return queue.drain(handler if handler is None or kind != "aio" else _async(handler), **options)

    return drain


def registered(queue: Any, register: Callable[[Body], Body], function: Body) -> None:
    """Register a function with a queue, by `queue.handler` or the like; in the async API, it becomes async."""
    register(_async(function) if isinstance(queue, Awaited) else function)


def _async(function: Body) -> Body:
    @wraps(function)
    async def handle(subject: Any) -> Any:
        await asyncio.sleep(0)
        return function(subject)

    return handle


def examine(queue: Any, **options: Any) -> Any:
    """Let the doctor of the queue's API examine it."""
    return queue.examine(**options) if isinstance(queue, Awaited) else doctor.examine(queue, **options)


def at_once(queue: Any, call: Callable[[Any, Any], Any], arguments: Iterable[Any]) -> list[Any]:
    """Make the calls ``call(queue, argument)`` at the same time: from threads, or in tasks."""
    if isinstance(queue, Awaited):
        return queue.at_once(call, arguments)
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(partial(call, queue), arguments))


Calls = Sequence[Command[Any]]


def intercept(
    queue: Any,
    patch: pytest.MonkeyPatch,
    before: Callable[[Calls], list[Any] | None] = lambda _: None,
    after: Callable[[Calls], object] = lambda _: None,
) -> None:
    """Call `before` and `after` around each round trip of a queue; what `before` returns is taken as the reply."""
    connection = queue.target._executor if isinstance(queue, Awaited) else queue._executor
    run = connection.run

    def run_sync(calls: Calls, repeat: bool = True) -> list[Any]:
        instead = before(calls)
        results = run(calls, repeat) if instead is None else instead
        after(calls)
        return results

    async def run_async(calls: Calls, repeat: bool = True, urgent: bool = False) -> list[Any]:
        instead = before(calls)
        results = await run(calls, repeat, urgent) if instead is None else instead
        after(calls)
        return results

    patch.setattr(connection, "run", run_async if isinstance(queue, Awaited) else run_sync)


@pytest.fixture
def queue(make: Make) -> Queue:
    return make(max_retries=2, backoff=backoff.sequence([1, 10]), lease=30)


Take = Callable[..., Message]


@pytest.fixture
def take(queue: Queue) -> Take:
    """``take(id)``: receive one message, and check that it has this id."""

    def take(id: str = "a", **options: Any) -> Message:
        (message,) = queue.receive(1, **options)
        assert message.id == id
        return message

    return take
