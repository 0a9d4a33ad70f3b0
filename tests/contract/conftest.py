"""Fixtures: the same queue on a real Redis, through each kind of client, and on fakeredis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import fakeredis
import pytest
import redis

from delayq import Message, Queue, backoff
from tests.servers import RedisServer

CLIENTS: dict[str, dict[str, Any]] = {
    "redis": {},
    "redis-decoding": {"decode_responses": True},
    "redis-resp3": {"protocol": 3},
    "redis-shards": {},
    "fakeredis": {},
    "fakeredis-shards": {},
}


@dataclass
class Now:
    """The time that the scripts go by: milliseconds."""

    ms: float = 1_700_000_000_000
    queues: list[Queue] = field(default_factory=list)

    def __call__(self) -> float:
        return self.ms

    def later(self, seconds: float) -> None:
        """Let seconds pass."""
        self.ms += seconds * 1000


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client of a server that is empty."""
    if kind.startswith("fakeredis"):
        with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
            yield client
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    with server.client(**CLIENTS[kind]) as client:
        yield client


@pytest.fixture
def now() -> Now:
    return Now()


Make = Callable[..., Queue]


@pytest.fixture
def make(kind: str, client: redis.Redis, now: Now) -> Iterator[Make]:
    """``make(**options)``: a queue, which keeps to the test's time."""
    made: list[Queue] = []

    def make(name: str = "jobs", **options: Any) -> Queue:
        defaults = {"shards": 3 if kind.endswith("shards") else 1, "clock": now, "redis": client}
        made.append(Queue(name, **defaults | options))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


@pytest.fixture
def queue(make: Make) -> Queue:
    return make(max_retries=2, backoff=backoff.sequence([1, 10]), lease=30)


Take = Callable[..., Message]


@pytest.fixture
def take(queue: Queue) -> Take:
    """``take(id)``: receive one message, which is that of the id."""

    def take(id: str = "a", **options: Any) -> Message:
        (message,) = queue.receive(1, **options)
        assert message.id == id
        return message

    return take
